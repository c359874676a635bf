/** The content of a checkpoint: f32 master weights of every role, optimizer moments, and the state of the run. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ParameterBuffer } from '../autograd/parameters.js';
import { ending } from '../native/ending.js';
import { StepTrainError } from '../native/errors.js';
import { type SealedArtefact, sealArtefact } from '../run/artefact.js';
import type { RunDirectory } from '../run/directory.js';
import { readStoredF32 } from '../weights/checkpoint.js';
import { openSafetensors, type SafetensorsFile } from '../weights/safetensors.js';
import { writeSafetensors } from '../weights/safetensors-writer.js';
import type { AdamW, Moments } from './adamw.js';
import { readStateArrays, writeStateArrays } from './state-arrays.js';

/** The parameters of a run by role, such as policy, reference and reward. */
export type RoleParameters = Readonly<Record<string, ParameterBuffer>>;

/** The state of a run: everything that determines the next step and is not a tensor. */
export interface RunState {
  readonly format: typeof FORMAT;
  /** Names of the stages, in order. */
  readonly stages: readonly string[];
  /** Index of the current stage; the number of stages once all are done. */
  readonly stage: number;
  /** Steps done in the current stage, skipped ones included. */
  readonly stage_step: number;
  /** Steps of each stage that is done. */
  readonly done: readonly number[];
  /** Steps done in all stages. */
  readonly step: number;
  readonly skipped: number;
  /** Tokens that passed forward and backward, in all stages. */
  readonly tokens: number;
  /** The evaluation after this step is still to be done. */
  readonly validation_due: boolean;
  /** The best evaluation of the stage, whose parameters are in best.safetensors. */
  readonly best?:
    | {
        readonly stage_step: number;
        readonly value: number;
        /** Decides between evaluations of the same value: more is better. Absent where nothing decides. */
        readonly tie?: number | undefined;
      }
    | undefined;
  /** Evaluations since then without a better one. */
  readonly waited?: number | undefined;
  /** Stages that ended with the parameters they began with; absent: none. */
  readonly unchanged?: readonly string[] | undefined;
  /** Updates of each optimizer. */
  readonly updates: Readonly<Record<string, number>>;
  /** State of the stage itself. */
  readonly own?: unknown;
  /** Bit-identical continuation needs the same kernels and the same micro-batches. */
  readonly isa: string;
  readonly batching: Readonly<Record<string, number>>;
  /** The artefacts that stages have finished, by name. */
  readonly artefacts: Readonly<Record<string, SealedArtefact>>;
}

export interface CheckpointContent {
  readonly roles: RoleParameters;
  readonly optimizers: Readonly<Record<string, { readonly parameters: AdamW['parameters'] } & Moments>>;
  /** Values of the stage's parameters at its best evaluation. */
  readonly best?: { readonly parameters: ParameterBuffer; readonly values: Float32Array } | undefined;
  readonly state: RunState;
}

/** The file of a checkpoint that holds the `RunState`. */
export const STATE = 'state.json';
/** Format of state.json; a new number for every change of meaning. */
export const FORMAT = 4;
/** The arrays of the stage's own state, such as a rollout batch. */
const ARRAYS = 'state.safetensors';
const TRAINABLE = 'trainable.safetensors';
const OPTIMIZER = 'optimizer.safetensors';
const BEST = 'best.safetensors';

export async function writeRunCheckpoint(folder: string, content: CheckpointContent): Promise<void> {
  const { roles, optimizers, best, state } = content;
  const trainable = Object.entries(roles).flatMap(([role, { list }]) =>
    list.map(({ name, value }) => ({
      ...{ name: `${role}.${name}`, dtype: 'F32' as const, shape: value.shape },
      data: async () => bytesOf(await value.readFloats()),
    })),
  );
  await writeSafetensors(join(folder, TRAINABLE), trainable);
  const moments = Object.entries(optimizers).flatMap(([name, { parameters, expAvg, expAvgSq }]) => [
    ...sources(parameters, `exp_avg.${name}.`, expAvg as Float32Array<ArrayBuffer>),
    ...sources(parameters, `exp_avg_sq.${name}.`, expAvgSq as Float32Array<ArrayBuffer>),
  ]);
  await writeSafetensors(join(folder, OPTIMIZER), moments);
  if (best) {
    const values = best.values as Float32Array<ArrayBuffer>;
    await writeSafetensors(join(folder, BEST), sources(best.parameters, '', values));
  }
  const own = await writeStateArrays(join(folder, ARRAYS), state.own);
  await writeFile(join(folder, STATE), `${JSON.stringify({ ...state, own }, undefined, 2)}\n`);
}

export async function readRunState(folder: string): Promise<RunState> {
  const state = JSON.parse(await readFile(join(folder, STATE), 'utf8')) as RunState;
  if (state.format === FORMAT) return { ...state, own: readStateArrays(join(folder, ARRAYS), state.own) };
  throw new StepTrainError(
    'E_RESUME',
    `${folder} was written by another version of steptrain, whose runs this one cannot continue; start a new run`,
  );
}

/**
 * Refuses a checkpoint that this run could not continue.
 *
 * @param planned steps of each stage as the configuration now gives them; undefined for one that is not prepared yet
 */
export function checkContinuation(
  folder: string,
  state: RunState,
  here: Pick<RunState, 'isa' | 'batching' | 'stages'>,
  planned: readonly (number | undefined)[],
): void {
  if (state.isa !== here.isa) {
    throw new StepTrainError(
      'E_RESUME',
      `${folder} was written with the ${state.isa} kernels and this run uses ${here.isa}, whose rounding differs; ` +
        `resume with STEPTRAIN_ISA=${state.isa} or start a new run`,
    );
  }
  if (state.stages.join() !== here.stages.join()) {
    throw new StepTrainError(
      'E_RESUME',
      `${folder} was written by a run of the stages ${state.stages.join(', ')}, and the configuration now gives ` +
        `${here.stages.join(', ')}; restore it or start a new run`,
    );
  }
  joinBatching(folder, state.batching, here.batching);
  state.stages.forEach((name, i) => {
    const steps = planned[i];
    const done = i === state.stage ? state.stage_step : state.done[i];
    if (steps === undefined || done === undefined || (i < state.stage ? steps === done : steps >= done))
      return;
    throw new StepTrainError(
      'E_RESUME',
      `stage ${name} ${i < state.stage ? 'ended after' : 'is at'} step ${done}, and the configuration now gives it ${steps}: ` +
        'a stage can only be extended while it runs; restore its epochs or steps, or start a new run',
    );
  });
}

/** The batching of all stages known so far; refuses a value that differs from the one before the run was stopped. */
export function joinBatching(
  folder: string,
  before: RunState['batching'],
  now: RunState['batching'],
): RunState['batching'] {
  const changed = Object.keys(now).find((key) => key in before && before[key] !== now[key]);
  if (changed !== undefined) {
    throw new StepTrainError(
      'E_RESUME',
      `${folder} was written with ${changed} ${before[changed]}, and configuration and data now give ${now[changed]}; ` +
        'restore them or start a new run',
    );
  }
  return { ...before, ...now };
}

/** Refuses to continue from artefacts that changed since their stages wrote them. */
export async function checkArtefacts(run: RunDirectory, { artefacts }: RunState): Promise<void> {
  for (const [name, { sha256 }] of Object.entries(artefacts)) {
    const missing = !run.hasArtefact(name);
    const file = run.artefact(name);
    if (!missing && (await sealArtefact(file)).sha256 === sha256) continue;
    throw new StepTrainError(
      'E_RESUME',
      `${file.path} ${missing ? 'is missing' : 'was changed after the run wrote it'}; restore the file or start a new run`,
    );
  }
}

export function restoreRoles(folder: string, roles: RoleParameters): void {
  reading(join(folder, TRAINABLE), (file, path) => {
    for (const [role, parameters] of Object.entries(roles))
      parameters.write(stored(file, path, parameters, `${role}.`));
  });
}

export function restoreOptimizers(
  folder: string,
  optimizers: Readonly<Record<string, AdamW>>,
  { updates }: RunState,
): void {
  reading(join(folder, OPTIMIZER), (file, path) => {
    for (const [name, optimizer] of Object.entries(optimizers)) {
      const expAvg = stored(file, path, optimizer.parameters, `exp_avg.${name}.`);
      const expAvgSq = stored(file, path, optimizer.parameters, `exp_avg_sq.${name}.`);
      optimizer.restore({ expAvg, expAvgSq }, updates[name] ?? 0);
    }
  });
}

export function readBest(folder: string, parameters: ParameterBuffer): Float32Array {
  return reading(join(folder, BEST), (file, path) => stored(file, path, parameters, ''));
}

function sources(
  { list, offsets }: Pick<ParameterBuffer, 'list' | 'offsets'>,
  prefix: string,
  data: Float32Array<ArrayBuffer>,
) {
  return list.map(({ name, value }, i) => ({
    name: `${prefix}${name}`,
    dtype: 'F32' as const,
    shape: value.shape,
    data: () => new Uint8Array(data.buffer, data.byteOffset + 4 * (offsets[i] as number), 4 * value.size),
  }));
}

const bytesOf = ({ buffer, byteOffset, byteLength }: Float32Array) =>
  new Uint8Array(buffer, byteOffset, byteLength);

function reading<T>(path: string, read: (file: SafetensorsFile, path: string) => T): T {
  using file = ending(openSafetensors(path));
  return read(file, path);
}

function stored(
  file: SafetensorsFile,
  path: string,
  parameters: Pick<ParameterBuffer, 'list' | 'offsets' | 'size'>,
  prefix: string,
): Float32Array {
  const values = new Float32Array(parameters.size);
  parameters.list.forEach(({ name, value }, i) => {
    const entry = file.tensors.get(prefix + name);
    if (!entry || entry.shape.join() !== value.shape.join()) {
      throw new StepTrainError(
        'E_RESUME',
        `${path}: expected ${prefix}${name} of shape [${value.shape.join(', ')}], found ${entry ? `[${entry.shape.join(', ')}]` : 'none'}; the model or the lora section changed since`,
      );
    }
    values.set(readStoredF32(file, prefix + name), parameters.offsets[i]);
  });
  return values;
}
