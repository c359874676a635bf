/** Collects the content of a run directory. A missing file is absent; an unreadable one is a sentence in `damaged`. */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { parse } from 'yaml';
import { walk } from '../config/values.js';
import type { EvalReport } from '../eval/reports/eval-report.js';
import { readEvalReport } from '../eval/reports/report-file.js';
import { readSolvedReport, type SolvedReport } from '../eval/solving/run-report.js';
import { isLocked } from '../files/lock.js';
import { attempt } from '../native/attempt.js';
import { RunError } from '../run/error.js';
import { MetricLog } from './metric-log.js';
import { type Rollout, readRollouts } from './rollouts.js';
import { type JudgedSolution, readJudgedSolutions } from './solutions.js';
import { NO_TIMES, type RunTimes, runTimes } from './times.js';
import { isObject, numbersIn } from './values.js';

type RunStatus = 'running' | 'finished' | 'stopped';

export interface CollectedRun {
  /** Absolute. */
  readonly path: string;
  readonly name: string;
  readonly status: RunStatus;
  /** Milliseconds since 1970 of the newest line. */
  readonly changed: number;
  readonly log: MetricLog;
  /** config.yaml as text and as values. */
  readonly configText: string;
  readonly config: Readonly<Record<string, unknown>>;
  /** eval.json of a run that judges steps. */
  readonly report?: EvalReport;
  /** eval.json of a run that solves problems. */
  readonly solved?: SolvedReport;
  /** eval.json as it is, whatever wrote it; empty where there is none. */
  readonly evaluation: Readonly<Record<string, unknown>>;
  readonly memory?: RunMemory;
  readonly progress?: RunProgress;
  readonly rollouts: readonly Rollout[];
  readonly solutions: readonly JudgedSolution[];
  readonly times: RunTimes;
  /** Folders with the trained models. */
  readonly products: readonly string[];
  readonly damaged: readonly string[];
}

/** progress.json: the stages of the run, which of them it is in, and the steps of that one. */
interface RunProgress {
  readonly stages: readonly string[];
  readonly stage: number;
  readonly steps: number;
}

/** memory.json. */
export interface RunMemory {
  readonly device?: string;
  readonly planned_bytes: Readonly<Record<string, number>>;
  readonly planned_peak_bytes?: number;
  readonly gradient_checkpointing: boolean;
  readonly held_bytes: Readonly<Record<string, number>>;
}

const PRODUCTS = ['adapter', 'model', 'reward', 'value_head.safetensors', 'reward_head.safetensors'];

export function isRun(path: string): boolean {
  return existsSync(join(path, 'config.yaml')) && existsSync(join(path, 'metrics.jsonl'));
}

/**
 * Reads a run. Of a `log` that was read before, only the new lines are read.
 *
 * @throws RunError where `path` is no run directory
 */
export async function collectRun(path: string, log?: MetricLog): Promise<CollectedRun> {
  const full = resolve(path);
  if (!existsSync(full)) throw new RunError(`there is no run directory ${path}`);
  if (!existsSync(join(full, 'config.yaml')))
    throw new RunError(`${path} is not a run directory: it has no config.yaml; name the output_dir of a run`);
  const damaged: string[] = [];
  const attempt = async <T>(name: string, read: () => T | Promise<T>): Promise<T | undefined> => {
    if (!existsSync(join(full, name))) return undefined;
    try {
      return await read();
    } catch (error) {
      damaged.push(`${name} is left out: ${(error as Error).message.replaceAll(`${full}/`, '')}`);
      return undefined;
    }
  };
  const json = (name: string) =>
    attempt(name, () => JSON.parse(readFileSync(join(full, name), 'utf8')) as unknown);

  const metrics = log ?? new MetricLog(join(full, 'metrics.jsonl'));
  metrics.read();
  if (metrics.damaged > 0)
    damaged.push(`metrics.jsonl: ${metrics.damaged} lines cannot be read and are left out`);
  const configText = readFileSync(join(full, 'config.yaml'), 'utf8');
  const config = await attempt('config.yaml', () => parse(configText) as Record<string, unknown>);
  const evaluated = await attempt('eval.json', async () => {
    const solved = await readSolvedReport(full);
    return solved ? { solved } : { report: await readEvalReport(join(full, 'eval.json')) };
  });
  const evaluation = readLoosely(join(full, 'eval.json'));
  const memory = asMemory(await json('memory.json'));
  const progress = asProgress(await json('progress.json'));
  const sampled = await attempt('samples.jsonl', () => readRollouts(join(full, 'samples.jsonl')));
  damaged.push(...(sampled?.notes ?? []));
  return {
    path: full,
    name: basename(full),
    status: (await isLocked(full)) ? 'running' : metrics.phase('test') ? 'finished' : 'stopped',
    changed: newest(full),
    log: metrics,
    configText,
    config: isObject(config) ? config : {},
    ...evaluated,
    evaluation: isObject(evaluation) ? evaluation : {},
    ...(memory ? { memory } : {}),
    ...(progress ? { progress } : {}),
    rollouts: sampled?.rollouts ?? [],
    solutions:
      (await attempt('verdicts.jsonl', () => readJudgedSolutions(join(full, 'verdicts.jsonl')))) ?? [],
    times: (await attempt('tensorboard', () => runTimes(full, metrics))) ?? NO_TIMES,
    products: PRODUCTS.filter((name) => existsSync(join(full, name))),
    damaged,
  };
}

/** Reads JSON of any content; undefined for a damaged file, which was reported already. */
export function readLoosely(path: string): unknown {
  return attempt(() => JSON.parse(readFileSync(path, 'utf8')));
}

/** A value of the configuration by its dotted key. */
export function configValue({ config }: Pick<CollectedRun, 'config'>, key: string): unknown {
  return walk(config, key.split('.')).found;
}

function newest(path: string): number {
  const file = ['metrics.jsonl', 'config.yaml']
    .map((name) => join(path, name))
    .find((name) => existsSync(name));
  return file === undefined ? 0 : statSync(file).mtimeMs;
}

function asProgress(value: unknown): RunProgress | undefined {
  if (!isObject(value)) return undefined;
  const { stages, stage, steps } = value;
  if (!Array.isArray(stages) || typeof stage !== 'number' || typeof steps !== 'number') return undefined;
  return { stages: stages.map(String), stage, steps };
}

function asMemory(value: unknown): RunMemory | undefined {
  if (!isObject(value)) return undefined;
  return {
    ...(typeof value.device === 'string' ? { device: value.device } : {}),
    planned_bytes: numbersIn(value.planned_bytes),
    held_bytes: numbersIn(value.held_bytes),
    gradient_checkpointing: value.gradient_checkpointing === true,
    ...numbersIn({ planned_peak_bytes: value.planned_peak_bytes }),
  };
}

/** The run directories below `path`, at most three folders deep, by name. */
export function runsBelow(path: string, depth = 3): string[] {
  if (isRun(path)) return [path];
  if (depth === 0) return [];
  return attempt(() => readdirSync(path, { withFileTypes: true }), [])
    .filter((entry) => entry.isDirectory() && !entry.name.startsWith('.') && entry.name !== 'node_modules')
    .map(({ name }) => name)
    .sort()
    .flatMap((name) => runsBelow(join(path, name), depth - 1));
}
