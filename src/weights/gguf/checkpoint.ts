/** The weights of a GGUF file as a checkpoint: names, shapes and order of rows of transformers; quantised ones in f32. */
import { readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { attempt } from '../../native/attempt.js';
import { log } from '../../native/elementary.js';
import { fromF32, toF32 } from '../convert.js';
import { bytesPerElement, type Dtype, isFloatDtype } from '../dtype.js';
import { show, showNames, WeightsError } from '../error.js';
import { MAX_EXPERTS } from '../modules.js';
import { formatOfBlocks, type QuantizedFormat, type QuantizedWeight } from '../quantized/format.js';
import type { CheckpointReader } from '../reader.js';
import type { TensorEntry } from '../weights-file.js';
import { dequantize } from './dequantize.js';
import { type GgufFile, type GgufTensor, openGguf } from './file.js';
import { type HeadSizes, reordered, storedForm } from './form.js';
import { metadataOf } from './metadata.js';
import { checkpointName, expertName, hasDelta } from './names.js';

/** The name of a link to the file, in the directory of its configuration. */
export const GGUF_FILE = 'model.gguf';

/**
 * The name of a model directory in messages. A directory in the cache that was made from a GGUF file has that file's
 * path.
 */
export function calledAs(directory: string): string {
  return attempt(() => readlinkSync(join(directory, GGUF_FILE)), directory);
}

/** Tensors that follow from metadata or other tensors; a checkpoint does not store them. */
const COMPUTED = /^rope_freqs\.weight$/;

/**
 * @param directory what errors and {@link CheckpointReader.directory} name
 * @throws WeightsError for a damaged file, or one with tensors that no checkpoint of its architecture has
 */
export function openGgufCheckpoint(path: string, directory: string): CheckpointReader {
  const file = openGguf(path);
  try {
    return new GgufCheckpoint(file, directory);
  } catch (error) {
    file.close();
    throw error;
  }
}

/** A tensor, or the part of one that is a weight. */
interface StoredWeight extends Pick<GgufTensor, 'name' | 'type' | 'shape'> {
  readonly part?: { readonly index: number; readonly of: number };
}

/** Weights by their names in a checkpoint. A joint tensor gives the weight of each of `experts`. */
function weightsOf(
  name: string,
  tensor: GgufTensor,
  experts: number,
  path: string,
): [string, StoredWeight][] {
  const { name: stored, type, shape } = tensor;
  const [of = 0, ...own] = shape;
  if (expertName(name, 0) === undefined || shape.length !== 3) return [[name, tensor]];
  // A tensor of no bytes may claim any number.
  if (of !== experts || own.includes(0))
    throw new WeightsError(
      `${path}: tensor ${show(stored)}: expected the weights of ${experts} experts (expert_count), found ${show(shape)}`,
    );
  const [rows = 0, ...columns] = own;
  const modules = name.includes('.gate_up_proj.') ? ['gate_proj', 'up_proj'] : [undefined];
  const parts = modules.length;
  if (rows % parts !== 0)
    throw new WeightsError(
      `${path}: tensor ${show(stored)}: expected the gates and as many ups of each expert, found ${show(shape)}`,
    );
  return Array.from({ length: of }, (_, index) =>
    modules.map((module, part): [string, StoredWeight] => [
      expertName(module ? name.replace('gate_up_proj', module) : name, index) as string,
      {
        name: stored,
        type,
        shape: [rows / parts, ...columns],
        part: { index: index * parts + part, of: of * parts },
      },
    ]),
  ).flat();
}

class GgufCheckpoint implements CheckpointReader {
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  readonly #stored = new Map<string, StoredWeight>();
  readonly #architecture: string;
  readonly #sizes: HeadSizes;

  constructor(
    private readonly file: GgufFile,
    readonly directory: string,
  ) {
    const metadata = metadataOf(file);
    this.#architecture = metadata.architecture;
    const delta = hasDelta(metadata.architecture) ? metadata.delta() : undefined;
    this.#sizes = { headDim: metadata.headDim(), ...(delta && { delta }) };
    const [layers, blocks] = delta
      ? [metadata.layers(), metadata.required('integer', metadata.of('block_count'))]
      : [0, 0];
    const entries = new Map<string, TensorEntry>();
    const unknown: string[] = [];
    const experts = metadata.integer(metadata.of('expert_count')) ?? 0;
    if (experts > MAX_EXPERTS) metadata.fail(metadata.of('expert_count'), `at most ${MAX_EXPERTS} experts`);
    for (const tensor of file.tensors.values()) {
      const block = Number(/^blk\.(\d+)\./.exec(tensor.name)?.[1]);
      if (COMPUTED.test(tensor.name) || (block >= layers && block < blocks)) continue;
      const name = checkpointName(metadata.architecture, tensor.name);
      if (name === undefined) {
        unknown.push(tensor.name);
        continue;
      }
      const dtype: Dtype = isFloatDtype(tensor.type.name) ? tensor.type.name : 'F32';
      const { squeezed } = this.#form(tensor.name);
      // Some files keep the 1 of a matrix of one row.
      const isWhole = squeezed === undefined || (squeezed === 0 && tensor.shape.length > 1);
      const stored = isWhole ? tensor : { ...tensor, shape: tensor.shape.toSpliced(squeezed, 0, 1) };
      for (const [own, weight] of weightsOf(name, stored, experts, file.path)) {
        const values = weight.shape.reduce((product, extent) => product * extent, 1);
        // Extent and dtype are those of the values as read, not as stored.
        entries.set(own, { dtype, shape: weight.shape, begin: 0, end: values * bytesPerElement(dtype) });
        this.#stored.set(own, weight);
      }
    }
    if (unknown.length > 0)
      throw new WeightsError(
        `${file.path}: expected only the tensors of a ${show(metadata.architecture)} model, found ${showNames(unknown)}`,
      );
    this.tensors = entries;
  }

  /** Undefined also where a block has values of several groups that lie elsewhere in the checkpoint. */
  format(name: string): QuantizedFormat | undefined {
    const { name: stored, type } = this.#tensor(name);
    const { order } = this.#form(stored);
    if (order?.axis === 'columns' && order.size % type.values !== 0) return undefined;
    return formatOfBlocks(type.name);
  }

  quantized(name: string): QuantizedWeight | undefined {
    const format = this.format(name);
    if (!format) return undefined;
    const tensor = this.#tensor(name);
    return { format, bytes: this.#ordered(tensor, this.file.read(tensor.name, tensor.part)) };
  }

  #tensor(name: string): StoredWeight {
    const tensor = this.#stored.get(name);
    if (tensor === undefined) throw new WeightsError(`${this.directory}: there is no weight ${show(name)}`);
    return tensor;
  }

  #form(stored: string) {
    return storedForm(this.#architecture, stored, this.#sizes);
  }

  #ordered({ name, shape }: StoredWeight, bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
    const { order } = this.#form(name);
    return order ? reordered(bytes, shape, order, 'checkpoint') : bytes;
  }

  read(name: string): Uint8Array<ArrayBuffer> {
    const tensor = this.#tensor(name);
    const { offset, isDecay } = this.#form(tensor.name);
    const stored = this.file.read(tensor.name, tensor.part);
    const { name: type } = tensor.type;
    const bytes = isFloatDtype(type) ? stored : new Uint8Array(dequantize(stored, tensor.type).buffer);
    const ordered = this.#ordered(tensor, bytes);
    if (offset === 0 && !isDecay) return ordered;
    const dtype = isFloatDtype(type) ? type : 'F32';
    const values = toF32(ordered, dtype);
    if (isDecay && values.some((value) => !(value < 0)))
      throw new WeightsError(
        `${this.file.path}: tensor ${show(tensor.name)}: expected values below 0, -exp of ${show(name)}, found others`,
      );
    return fromF32(
      values.map((value) => (isDecay ? log(-value) : value - offset)),
      dtype,
    );
  }

  close(): void {
    this.file.close();
  }
}
