import { availableParallelism, cpus, totalmem } from 'node:os';
import { openDevice } from '#src/runtime/device.js';
import type { Rival } from './rival.js';

export interface Machine {
  readonly processor: string;
  readonly cores: number;
  readonly isa: string;
  readonly threads: number;
  readonly memoryGiB: number;
  readonly node: string;
  /** torch, transformers, peft; empty without a rival. */
  readonly rival: Readonly<Record<string, string>>;
  readonly date: string;
}

export function describeMachine(rival: Rival | undefined): Machine {
  const device = openDevice(process.env.STEPTRAIN_BENCH_DEVICE);
  const { name, description, isa, threads } = device.info();
  device.dispose();
  return {
    processor: name === 'cpu' ? (cpus()[0]?.model.trim() ?? 'unknown') : description,
    cores: availableParallelism(),
    isa,
    threads,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    node: process.versions.node,
    rival: rival?.versions ?? {},
    date: new Date().toISOString().slice(0, 10),
  };
}

export function machineLine({
  processor,
  cores,
  isa,
  threads,
  memoryGiB,
  node,
  rival,
  date,
}: Machine): string {
  const versions = Object.entries({ node, ...rival }).map(([name, version]) => `${name} ${version}`);
  return `${processor}, ${cores} cores, ${threads} threads, ${isa}, ${memoryGiB} GiB; ${versions.join(', ')}; ${date}`;
}

/**
 * File name under results/, such as amd-epyc-2-cores-avx512bf16-2026-01-31-decode.json. It names the suites, so that
 * one suite's results never replace another's of the same day.
 */
export function resultName({ processor, cores, isa, date }: Machine, suites: readonly string[]): string {
  const slug = `${processor} ${cores} cores ${isa}`.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-');
  return `${[slug, date, ...suites].join('-')}.json`;
}
