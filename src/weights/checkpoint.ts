/**
 * Weights of a Hugging Face model directory: one `model.safetensors` (an index may list its weights), or shards listed by
 * `model.safetensors.index.json`; without either, the same of `pytorch_model.bin`. Every weight must be where the index
 * says, and nowhere else. In a directory made from a GGUF file (`models/gguf.ts`), the weights are that file's.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { systemReason } from '../files/error.js';
import { toF32 } from './convert.js';
import { type FloatDtype, isFloatDtype } from './dtype.js';
import { show, showNames, WeightsError } from './error.js';
import { Fields } from './fields.js';
import { calledAs, GGUF_FILE, openGgufCheckpoint } from './gguf/checkpoint.js';
import { readJsonObject } from './json.js';
import { withQuantizedWeights } from './quantized/checkpoint.js';
import type { CheckpointReader } from './reader.js';
import { openSafetensors } from './safetensors.js';
import { openTorch } from './torch/file.js';
import type { WeightsFile } from './weights-file.js';

export type { CheckpointReader } from './reader.js';

export const SINGLE_FILE = 'model.safetensors';
export const INDEX_FILE = 'model.safetensors.index.json';

/** The files of a layout. */
export interface WeightsLayout {
  readonly single: string;
  readonly index: string;
  /** Ends the names of both, and of shards. */
  readonly ending: string;
}

/** Layouts in the order of preference. */
export const LAYOUTS: readonly WeightsLayout[] = [
  { single: SINGLE_FILE, index: INDEX_FILE, ending: '.safetensors' },
  { single: 'pytorch_model.bin', index: 'pytorch_model.bin.index.json', ending: '.bin' },
];

/** The layout of a directory or repository with these files; undefined where there are no weights. */
export function weightsLayout(has: (file: string) => boolean): WeightsLayout | undefined {
  return LAYOUTS.find(({ single, index }) => has(single) || has(index));
}

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

type MatchedReader = Pick<CheckpointReader, 'directory' | 'tensors' | 'read' | 'part'>;

/**
 * Opens the weights of a model directory.
 *
 * @throws WeightsError naming the file, and the weight where there is one
 */
export function openCheckpoint(directory: string): CheckpointReader {
  const gguf = join(directory, GGUF_FILE);
  if (existsSync(gguf)) return openGgufCheckpoint(gguf, calledAs(directory));
  const stored = openFiles(directory);
  try {
    return withQuantizedWeights(stored);
  } catch (error) {
    stored.close();
    throw error;
  }
}

function openFiles(directory: string): CheckpointReader {
  const layout = weightsLayout((file) => existsSync(join(directory, file)));
  if (layout === undefined) throw new WeightsError(absenceReason(directory));
  const [single, index] = [join(directory, layout.single), join(directory, layout.index)];
  if (!existsSync(index)) return together(directory, [openFile(single)]);
  const named = existsSync(single) ? shardNames(index) : undefined;
  // MLX writes an index beside a single file too.
  if (named === undefined || (named.length === 1 && named[0] === layout.single))
    return openShards(directory, index);
  throw new WeightsError(
    `${directory}: expected either ${layout.single} or ${layout.index}, found both; remove the one that is out of date`,
  );
}

/**
 * Compares the weights of a checkpoint with those that a model needs: names, shapes and dtypes must match exactly.
 *
 * @returns the needed weights in the order of `expected`
 * @throws WeightsError that lists the missing and the unexpected names, the wrong shape or dtype, or a tied copy that
 *   differs
 */
export function matchWeights(
  checkpoint: MatchedReader,
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
  const { ending } = LAYOUTS.find((layout) => indexPath.endsWith(layout.index)) as WeightsLayout;
  return new Map(names.map((name) => [name, shardName(map, name, ending)]));
}

function openFile(path: string): WeightsFile {
  return path.endsWith('.bin') ? openTorch(path) : openSafetensors(path);
}

function openShards(directory: string, indexPath: string): CheckpointReader {
  const fileOf = readIndex(indexPath);
  const shards: WeightsFile[] = [];
  try {
    const seen = new Map<string, string>();
    for (const file of shardNames(indexPath)) {
      const shard = openFile(join(directory, file));
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
    return together(directory, shards);
  } catch (error) {
    for (const shard of shards) shard.close();
    throw error;
  }
}

/** The name of a shard, which must lie in the directory of its index: a path could lead anywhere. */
function shardName(map: Fields, weight: string, ending: string): string {
  const file = map.value(weight);
  if (typeof file !== 'string' || !/^\w[\w.-]*$/.test(file) || !file.endsWith(ending)) {
    return map.fail(weight, `the name of a ${ending} file in the same directory`);
  }
  return file;
}

function absenceReason(directory: string): string {
  try {
    readdirSync(directory);
  } catch (error) {
    return `cannot read ${directory}: ${systemReason(error)}`;
  }
  return `${directory}: expected ${SINGLE_FILE}, ${INDEX_FILE} or pytorch_model.bin, found none`;
}

function sameShape(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((extent, i) => extent === b[i]);
}

/** Bytes compared at a time of two tied weights: an embedding may be as large as the memory that is left. */
const COMPARED_BYTES = 64 * 2 ** 20;

function requireSameBytes(checkpoint: MatchedReader, alias: string, name: string): void {
  const [a, b] = [checkpoint.tensors.get(alias)!, checkpoint.tensors.get(name)!];
  if (a.dtype === b.dtype && sameShape(a.shape, b.shape) && sameBytes(checkpoint, alias, name)) return;
  throw new WeightsError(
    `${checkpoint.directory}: the configuration ties '${alias}' to '${name}', but the two differ; set tie_word_embeddings to false in config.json`,
  );
}

function sameBytes(checkpoint: MatchedReader, alias: string, name: string): boolean {
  if (!checkpoint.part) return Buffer.compare(checkpoint.read(alias), checkpoint.read(name)) === 0;
  const { begin, end } = checkpoint.tensors.get(name)!;
  for (let from = 0; from < end - begin; from += COMPARED_BYTES) {
    const to = Math.min(end - begin, from + COMPARED_BYTES);
    if (Buffer.compare(checkpoint.part(alias, from, to), checkpoint.part(name, from, to)) !== 0) return false;
  }
  return true;
}

/** The tensors of all its files. */
function together(directory: string, shards: readonly WeightsFile[]): CheckpointReader {
  const fileOf = new Map(
    shards.flatMap((shard) => [...shard.tensors.keys()].map((name) => [name, shard] as const)),
  );
  const holding = (name: string): WeightsFile => {
    const file = fileOf.get(name);
    if (file === undefined) throw new WeightsError(`${directory}: there is no weight ${show(name)}`);
    return file;
  };
  const part = (name: string, from: number, to: number) =>
    holding(name).part?.(name, from, to) ?? holding(name).read(name).subarray(from, to);
  return {
    directory,
    tensors: new Map(shards.flatMap(({ tensors }) => [...tensors])),
    read: (name) => holding(name).read(name),
    part,
    close() {
      for (const shard of shards) shard.close();
    },
  };
}
