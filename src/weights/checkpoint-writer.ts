/** Writes a Hugging Face model directory: shards of bounded size, their index, `config.json`. */

import fs from 'node:fs';
import { join } from 'node:path';
import { writeFileAtomically } from '../files/atomic-file.js';
import { makeDirectories } from '../files/directory.js';
import { systemReason } from '../files/error.js';
import { INDEX_FILE, SINGLE_FILE } from './checkpoint.js';
import { bytesPerElement, type FloatDtype, tensorBytes } from './dtype.js';
import { show, WeightsError } from './error.js';
import type { JsonObject } from './json.js';
import { type TensorSource, writeSafetensors } from './safetensors-writer.js';

/** transformers' default: most models are one file. */
const DEFAULT_SHARD_BYTES = 50_000_000_000;

const DTYPE_NAMES: Readonly<Record<FloatDtype, string>> = {
  F32: 'float32',
  BF16: 'bfloat16',
  F16: 'float16',
};

/** A weight to be written: its tensor, in the type of the file. */
export type WeightSource = TensorSource & { readonly dtype: FloatDtype };

export interface CheckpointWriteOptions {
  /** Becomes `config.json`; its `dtype` is set to that of most values. */
  readonly config: JsonObject;
  /** A shard is closed before it would exceed this; one larger weight makes a shard of its own. */
  readonly maxShardBytes?: number;
}

/**
 * Writes the weights one at a time, in the given order, then `config.json` last, so that a directory with a readable configuration is
 * complete. The directory is made when absent and must not hold weights yet. After a failure the files of this call are removed.
 *
 * @throws WeightsError for weights already there, none to write, or a failed write
 */
export async function writeCheckpoint(
  directory: string,
  weights: readonly WeightSource[],
  { config, maxShardBytes = DEFAULT_SHARD_BYTES }: CheckpointWriteOptions,
): Promise<void> {
  const dtype = usualDtype(directory, weights);
  await makeDirectory(directory);
  const shards = splitShards(weights, maxShardBytes);
  const written: string[] = [];
  const write = async (name: string, action: (path: string) => Promise<void>) => {
    const path = join(directory, name);
    await action(path);
    written.push(path);
  };
  try {
    for (const [index, shard] of shards.entries()) {
      await write(shardFile(index, shards.length), (path) => writeSafetensors(path, shard, { format: 'pt' }));
    }
    if (shards.length > 1) await write(INDEX_FILE, (path) => writeJson(path, shardIndex(shards)));
    await write('config.json', (path) => writeJson(path, { ...config, dtype: DTYPE_NAMES[dtype] }));
  } catch (error) {
    await Promise.all(written.map((path) => fs.promises.rm(path, { force: true })));
    throw error;
  }
}

/** Writes an object as transformers and PEFT do: two spaces, keys in order, a newline at the end. */
export async function writeJson(path: string, value: JsonObject): Promise<void> {
  const sorted = Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
  await writeFileAtomically(path, [Buffer.from(`${JSON.stringify(sorted, undefined, 2)}\n`)]);
}

function usualDtype(directory: string, weights: readonly WeightSource[]): FloatDtype {
  const values = new Map<FloatDtype, number>();
  for (const { dtype, shape } of weights)
    values.set(dtype, (values.get(dtype) ?? 0) + shape.reduce((product, size) => product * size, 1));
  const [usual] = [...values].sort(([, a], [, b]) => b - a);
  if (usual === undefined) throw new WeightsError(`cannot write ${directory}: there are no weights`);
  return usual[0];
}

async function makeDirectory(directory: string): Promise<void> {
  let files: string[];
  try {
    await makeDirectories(directory);
    files = await fs.promises.readdir(directory);
  } catch (error) {
    throw new WeightsError(`cannot write ${directory}: ${systemReason(error)}`, { cause: error });
  }
  const taken = files.find((file) => /\.(safetensors|bin|safetensors\.index\.json)$/.test(file));
  if (taken !== undefined) {
    throw new WeightsError(
      `cannot write ${directory}: expected a directory without weights, found ${taken}; choose another or remove it`,
    );
  }
}

function splitShards(weights: readonly WeightSource[], maxShardBytes: number): WeightSource[][] {
  const shards: WeightSource[][] = [[]];
  let filled = 0;
  for (const weight of weights) {
    const bytes = weightBytes(weight);
    if (filled > 0 && filled + bytes > maxShardBytes) {
      shards.push([]);
      filled = 0;
    }
    shards.at(-1)!.push(weight);
    filled += bytes;
  }
  return shards;
}

function shardFile(index: number, count: number): string {
  const number = (value: number) => String(value).padStart(5, '0');
  return count === 1 ? SINGLE_FILE : `model-${number(index + 1)}-of-${number(count)}.safetensors`;
}

function shardIndex(shards: readonly (readonly WeightSource[])[]): JsonObject {
  const all = shards.flatMap((shard, index) => shard.map((weight) => ({ weight, index })));
  const bytes = all.reduce((sum, { weight }) => sum + weightBytes(weight), 0);
  const parameters = all.reduce(
    (sum, { weight }) => sum + weightBytes(weight) / bytesPerElement(weight.dtype),
    0,
  );
  const names = all.map(({ weight, index }) => [weight.name, shardFile(index, shards.length)] as const);
  return {
    metadata: { total_parameters: parameters, total_size: bytes },
    weight_map: Object.fromEntries(names.sort(([a], [b]) => (a < b ? -1 : 1))),
  };
}

function weightBytes({ name, dtype, shape }: WeightSource): number {
  const bytes = tensorBytes(dtype, shape);
  if (bytes === undefined) throw new WeightsError(`weight '${name}': the shape ${show(shape)} is not valid`);
  return bytes;
}
