/**
 * Weights of a Hugging Face model directory: one `model.safetensors`, or shards listed by `model.safetensors.index.json`. Every
 * weight must be where the index says, and nowhere else. Beside the configuration of a GGUF file (`models/gguf.ts`) it is that file.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { systemReason } from '../files/error.js';
import { toF32 } from './convert.js';
import { type FloatDtype, isFloatDtype } from './dtype.js';
import { show, showNames, WeightsError } from './error.js';
import { Fields } from './fields.js';
import { GGUF_FILE, openGgufCheckpoint } from './gguf/checkpoint.js';
import { readJsonObject } from './json.js';
import { conversionCommand, PICKLES } from './pickles.js';
import type { CheckpointReader } from './reader.js';
import { openSafetensors, type SafetensorsFile, type TensorEntry } from './safetensors.js';

export type { CheckpointReader } from './reader.js';

export const SINGLE_FILE = 'model.safetensors';
export const INDEX_FILE = 'model.safetensors.index.json';

/** A stored tensor as f32, whatever its dtype on disk. */
export function readStoredF32(
  file: Pick<CheckpointReader, 'read' | 'tensors'>,
  name: string,
): Float32Array<ArrayBuffer> {
  return toF32(file.read(name), file.tensors.get(name)?.dtype as FloatDtype);
}

/** A weight that a model needs. */
export interface ExpectedWeight {
  readonly name: string;
  readonly shape: readonly number[];
}

export interface FoundWeight {
  readonly name: string;
  readonly dtype: FloatDtype;
  readonly shape: readonly number[];
  readonly bytes: number;
}

export interface MatchOptions {
  /** A weight that may be present and is not read, such as a table that can be computed. */
  readonly ignore?: (name: string) => boolean;
  /** Weights that may be stored again under another name: alias → name. They must hold the same bytes. */
  readonly tied?: Readonly<Record<string, string>>;
}

/**
 * Opens the weights of a model directory.
 *
 * @throws WeightsError naming the file, and the weight where there is one
 */
export function openCheckpoint(directory: string): CheckpointReader {
  const single = join(directory, SINGLE_FILE);
  const index = join(directory, INDEX_FILE);
  const gguf = join(directory, GGUF_FILE);
  if (existsSync(gguf)) return openGgufCheckpoint(gguf, directory);
  if (existsSync(single) && existsSync(index)) {
    throw new WeightsError(
      `${directory}: expected either ${SINGLE_FILE} or ${INDEX_FILE}, found both; remove the one that is out of date`,
    );
  }
  if (existsSync(single)) return new OpenCheckpoint(directory, [openSafetensors(single)]);
  if (existsSync(index)) return openShards(directory, index);
  throw new WeightsError(absenceReason(directory));
}

/**
 * Compares what a checkpoint holds with what a model needs: names, shapes and dtypes must match exactly.
 *
 * @returns the needed weights in the order of `expected`
 * @throws WeightsError that lists the missing and the unexpected names, the wrong shape or dtype, or a tied copy that differs
 */
export function matchWeights(
  checkpoint: Pick<CheckpointReader, 'directory' | 'tensors' | 'readChunks'>,
  expected: readonly ExpectedWeight[],
  { ignore = () => false, tied = {} }: MatchOptions = {},
): readonly FoundWeight[] {
  const { directory, tensors } = checkpoint;
  const needed = new Set(expected.map(({ name }) => name));
  const missing = expected.filter(({ name }) => !tensors.has(name)).map(({ name }) => name);
  const unexpected = [...tensors.keys()].filter(
    (name) => !needed.has(name) && !ignore(name) && !Object.hasOwn(tied, name),
  );
  const problems = [
    ...(missing.length > 0 ? [`missing: ${showNames(missing)}`] : []),
    ...(unexpected.length > 0 ? [`unexpected: ${showNames(unexpected)}`] : []),
  ];
  if (problems.length > 0) {
    throw new WeightsError(
      `${directory}: the weights do not fit the model's configuration; ${problems.join('; ')}`,
    );
  }
  const found = expected.map(({ name, shape }): FoundWeight => {
    const { dtype, shape: actual, begin, end } = tensors.get(name)!;
    if (!isFloatDtype(dtype)) {
      throw new WeightsError(
        `${directory}: weight '${name}': expected dtype F32, BF16 or F16, found ${dtype}`,
      );
    }
    if (!sameShape(shape, actual)) {
      throw new WeightsError(
        `${directory}: weight '${name}': expected shape ${show(shape)}, found ${show(actual)}`,
      );
    }
    return { name, dtype, shape, bytes: end - begin };
  });
  for (const [alias, name] of Object.entries(tied)) {
    if (tensors.has(alias) && tensors.has(name)) requireSameBytes(checkpoint, alias, name);
  }
  return found;
}

/** The shards that an index names, sorted. Throws WeightsError for an index that is damaged. */
export function shardNames(indexPath: string): readonly string[] {
  return [...new Set(readIndex(indexPath).values())].sort();
}

/** Weight → shard. */
function readIndex(indexPath: string): ReadonlyMap<string, string> {
  const index = new Fields(readJsonObject(indexPath), indexPath);
  const map = index.nested('weight_map') ?? index.fail('weight_map', 'an object');
  const names = Object.keys(map.object);
  if (names.length === 0) index.fail('weight_map', 'at least one weight');
  return new Map(names.map((name) => [name, shardName(map, name)]));
}

function openShards(directory: string, indexPath: string): CheckpointReader {
  const fileOf = readIndex(indexPath);
  const shards: SafetensorsFile[] = [];
  try {
    const seen = new Map<string, string>();
    for (const file of shardNames(indexPath)) {
      const shard = openSafetensors(join(directory, file));
      shards.push(shard);
      for (const name of shard.tensors.keys()) {
        const other = seen.get(name);
        if (other !== undefined) {
          throw new WeightsError(`${directory}: weight '${name}' is in ${other} and again in ${file}`);
        }
        seen.set(name, file);
      }
    }
    const unlisted = [...seen.keys()].filter((name) => !fileOf.has(name));
    if (unlisted.length > 0) {
      throw new WeightsError(
        `${indexPath}: expected every weight of the shards to be listed, found none of ${showNames(unlisted)}`,
      );
    }
    for (const [name, file] of fileOf) {
      if (seen.get(name) !== file) {
        throw new WeightsError(
          `${indexPath}: weight '${name}': expected in ${file}, found ${seen.get(name) ?? 'in no shard'}`,
        );
      }
    }
    return new OpenCheckpoint(directory, shards);
  } catch (error) {
    for (const shard of shards) shard.close();
    throw error;
  }
}

/** A shard lies beside its index: a path in its name could lead anywhere. */
function shardName(map: Fields, weight: string): string {
  const file = map.value(weight);
  if (typeof file !== 'string' || !/^\w[\w.-]*\.safetensors$/.test(file)) {
    return map.fail(weight, 'the name of a .safetensors file in the same directory');
  }
  return file;
}

function absenceReason(directory: string): string {
  let files: string[];
  try {
    files = readdirSync(directory);
  } catch (error) {
    return `cannot read ${directory}: ${systemReason(error)}`;
  }
  const pickle = files.find((file) => PICKLES.test(file));
  if (pickle !== undefined) {
    return `${directory}: expected ${SINGLE_FILE}, found only ${pickle}, whose format can run code and is never read; convert it with transformers: ${conversionCommand(directory)}`;
  }
  return `${directory}: expected ${SINGLE_FILE} or ${INDEX_FILE}, found neither`;
}

function sameShape(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((extent, i) => extent === b[i]);
}

function requireSameBytes(
  { directory, tensors, readChunks }: Pick<CheckpointReader, 'directory' | 'tensors' | 'readChunks'>,
  alias: string,
  name: string,
): void {
  const [a, b] = [tensors.get(alias)!, tensors.get(name)!];
  let same = a.dtype === b.dtype && sameShape(a.shape, b.shape);
  if (same) {
    const chunkBytes = 8 * 1024 * 1024;
    const others = readChunks(name, chunkBytes)[Symbol.iterator]();
    for (const chunk of readChunks(alias, chunkBytes)) {
      same &&= Buffer.compare(chunk, others.next().value as Uint8Array) === 0;
      if (!same) break;
    }
  }
  if (same) return;
  throw new WeightsError(
    `${directory}: the configuration ties '${alias}' to '${name}', but the two differ; set tie_word_embeddings to false in config.json`,
  );
}

class OpenCheckpoint implements CheckpointReader {
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  readonly #files = new Map<string, SafetensorsFile>();

  constructor(
    readonly directory: string,
    readonly shards: readonly SafetensorsFile[],
  ) {
    const tensors = new Map<string, TensorEntry>();
    for (const shard of shards) {
      for (const [name, entry] of shard.tensors) {
        tensors.set(name, entry);
        this.#files.set(name, shard);
      }
    }
    this.tensors = tensors;
  }

  readonly read = (name: string) => this.#file(name).read(name);
  readonly readInto = (name: string, buffer: Uint8Array, offset?: number) =>
    this.#file(name).readInto(name, buffer, offset);
  readonly readChunks = (name: string, chunkBytes: number) => this.#file(name).readChunks(name, chunkBytes);

  close(): void {
    for (const shard of this.shards) shard.close();
  }

  #file(name: string): SafetensorsFile {
    const file = this.#files.get(name);
    if (file === undefined) throw new WeightsError(`${this.directory}: there is no weight ${show(name)}`);
    return file;
  }
}
