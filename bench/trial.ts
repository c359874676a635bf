/**
 * Our side of a trial, in a process of its own: one JSON request a line in, one JSON reply a line out, until the input
 * ends. The rival's twin is peers/trial.py.
 */
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { type Device, openDevice } from '#src/runtime/device.js';
import type { BenchCase } from './cases.js';
import { measure } from './ours/measure.js';
import { benchRuntime, type Metrics } from './ours/runtime.js';

export interface TrialRequest {
  readonly item: BenchCase;
  /** Way of doing it; ours has one. */
  readonly setting: string;
  /** Min seconds to measure. */
  readonly seconds: number;
}

export type TrialReply =
  | { readonly samples: readonly number[]; readonly peakBytes: number; readonly metrics?: Metrics }
  | { readonly error: string };

const device = openDevice(process.env.STEPTRAIN_BENCH_DEVICE);
for await (const line of createInterface({ input: process.stdin })) {
  const { item, seconds } = JSON.parse(line) as TrialRequest;
  process.stdout.write(`${JSON.stringify(await reply(device, item, seconds))}\n`);
}
device.dispose();

async function reply(device: Device, item: BenchCase, seconds: number): Promise<TrialReply> {
  try {
    if ('measure' in item) {
      return { samples: [], metrics: await benchRuntime(device, item), peakBytes: peakBytes() };
    }
    return { samples: await measure(device, item, seconds), peakBytes: peakBytes() };
  } catch (error) {
    return { error: (error as Error).message };
  }
}

/** Peak resident memory of the process; on a GPU, peak memory of its tensors. */
function peakBytes(): number {
  if (device.info().name !== 'cpu') return device.stats().peakBytes;
  const status = readFileSync('/proc/self/status', 'utf8');
  return Number(/^VmHWM:\s+(\d+) kB/m.exec(status)?.[1] ?? 0) * 1024;
}
