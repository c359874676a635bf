/** What a checkpoint of the training loop holds: f32 masters, optimizer moments, and where the loop stands. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { TrainableParameters } from '../autograd/parameters.js';
import { readStoredF32 } from '../models/load.js';
import { StepTrainError } from '../native/errors.js';
import type { Tensor } from '../runtime/tensor.js';
import { openSafetensors } from '../weights/safetensors.js';
import { writeSafetensors } from '../weights/safetensors-writer.js';
import type { AdamW } from './adamw.js';

/** Where the loop stands; everything that decides the next step and is not a tensor. */
export interface LoopState {
  /** Optimizer steps taken, skipped ones included. */
  readonly step: number;
  /** Updates that changed the parameters. */
  readonly updates: number;
  readonly skipped: number;
  readonly tokens: number;
  /** Bit-identical continuation needs the same kernels and the same cut of the batches. */
  readonly isa: string;
  readonly plan: { readonly tokens_per_step: number; readonly micro_batch_tokens: number };
}

export async function writeLoopCheckpoint(
  folder: string,
  parameters: TrainableParameters,
  optimizer: AdamW,
  state: LoopState,
): Promise<void> {
  const flat = async (tensor: Tensor) => (await tensor.readFloats()) as Float32Array<ArrayBuffer>;
  const [values, expAvg, expAvgSq] = await Promise.all([
    flat(parameters.values),
    flat(optimizer.expAvg),
    flat(optimizer.expAvgSq),
  ]);
  const sources = (prefix: string, data: Float32Array<ArrayBuffer>) =>
    parameters.list.map(({ name, value }, i) => ({
      name: `${prefix}${name}`,
      dtype: 'F32' as const,
      shape: value.shape,
      data: () => new Uint8Array(data.buffer, 4 * (parameters.offsets[i] as number), 4 * value.size),
    }));
  await writeSafetensors(join(folder, 'trainable.safetensors'), sources('', values));
  await writeSafetensors(join(folder, 'optimizer.safetensors'), [
    ...sources('exp_avg.', expAvg),
    ...sources('exp_avg_sq.', expAvgSq),
  ]);
  await writeFile(join(folder, 'state.json'), `${JSON.stringify(state, undefined, 2)}\n`);
}

/** Restores parameters and moments; refuses a state that could not continue bit by bit. */
export async function readLoopCheckpoint(
  folder: string,
  parameters: TrainableParameters,
  optimizer: AdamW,
  here: Pick<LoopState, 'isa' | 'plan'>,
): Promise<LoopState> {
  const state = JSON.parse(await readFile(join(folder, 'state.json'), 'utf8')) as LoopState;
  if (state.isa !== here.isa) {
    throw new StepTrainError(
      'E_RESUME',
      `${folder} was written with the ${state.isa} kernels and this run uses ${here.isa}, whose rounding differs; ` +
        `resume with STEPTRAIN_ISA=${state.isa} or start a new run`,
    );
  }
  if (JSON.stringify(state.plan) !== JSON.stringify(here.plan)) {
    throw new StepTrainError(
      'E_RESUME',
      `${folder} was written with batches of ${JSON.stringify(state.plan)} and config.yaml now says ` +
        `${JSON.stringify(here.plan)}; restore it or start a new run`,
    );
  }
  fill(parameters, parameters.values, join(folder, 'trainable.safetensors'), '');
  fill(parameters, optimizer.expAvg, join(folder, 'optimizer.safetensors'), 'exp_avg.');
  fill(parameters, optimizer.expAvgSq, join(folder, 'optimizer.safetensors'), 'exp_avg_sq.');
  optimizer.steps = state.updates;
  return state;
}

function fill(parameters: TrainableParameters, target: Tensor, path: string, prefix: string): void {
  const file = openSafetensors(path);
  try {
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
    target.write(values);
  } finally {
    file.close();
  }
}
