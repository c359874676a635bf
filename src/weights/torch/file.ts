/**
 * Files of weights that torch.save wrote (`pytorch_model.bin`): a zip with a pickle, which says what the tensors are, and their storages.
 * The pickle is data here; see `unpickle.ts`.
 */
import { closeSync } from 'node:fs';
import { bytesPerElement } from '../dtype.js';
import { show, WeightsError } from '../error.js';
import { openWeights, readFully } from '../file-bytes.js';
import { type TensorEntry, tensorNameProblem, type WeightsFile } from '../safetensors.js';
import { unpickle } from './unpickle.js';
import { type Storage, Tensor } from './values.js';
import { readZip, type ZipEntry } from './zip.js';

const MAX_PICKLE_BYTES = 16_000_000;
const ZIP = 0x04034b50;

/**
 * Opens a file and checks its whole layout. A tensor may be a view of its storage, with strides, and several may share one.
 *
 * @throws WeightsError that names the file and, where there is one, the tensor
 */
export function openTorch(path: string): WeightsFile {
  return openWeights(path, 'a file of torch.save', (descriptor, bytes) => {
    requireZip(path, descriptor, bytes);
    const entries = readZip(path, descriptor, bytes);
    return new TorchFile(path, descriptor, entries);
  });
}

function requireZip(path: string, descriptor: number, bytes: number): void {
  const magic = new Uint8Array(4);
  if (bytes >= magic.length) readFully(path, descriptor, magic, 0);
  if (new DataView(magic.buffer).getUint32(0, true) === ZIP) return;
  throw new WeightsError(
    `${path}: expected the zip archive that torch.save writes since PyTorch 1.6, found something else; ` +
      'load it with torch.load(weights_only=True) and save it with safetensors',
  );
}

class TorchFile implements WeightsFile {
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  readonly #stored = new Map<string, { readonly tensor: Tensor; readonly begin: number }>();
  #descriptor: number | undefined;

  constructor(
    readonly path: string,
    descriptor: number,
    entries: ReadonlyMap<string, ZipEntry>,
  ) {
    this.#descriptor = descriptor;
    const pickle = [...entries.keys()].find((name) => /^[^/]+\/data\.pkl$/.test(name));
    if (pickle === undefined) throw new WeightsError(`${path}: expected an entry data.pkl, found none`);
    const folder = pickle.slice(0, -'data.pkl'.length);
    const order = entries.get(`${folder}byteorder`);
    if (order !== undefined && Buffer.from(this.#bytes(order, 16)).toString() !== 'little')
      throw new WeightsError(`${path}: expected values in little-endian order`);
    const value = unpickle(this.#bytes(entries.get(pickle) as ZipEntry, MAX_PICKLE_BYTES), path);
    if (!(value instanceof Map))
      throw new WeightsError(`${path}: expected tensors by name, found something else`);
    const tensors = new Map<string, TensorEntry>();
    for (const [name, tensor] of value) {
      if (typeof name !== 'string' || !(tensor instanceof Tensor))
        throw new WeightsError(
          `${path}: expected tensors by name, found something else under ${show(name)}; is it a checkpoint of a training?`,
        );
      const problem = tensorNameProblem(name);
      if (problem !== undefined) throw new WeightsError(`${path}: tensor ${show(name)}: ${problem}`);
      const { dtype } = tensor.storage;
      const begin = this.#place(name, tensor.storage, entries.get(`${folder}data/${tensor.storage.key}`));
      this.#stored.set(name, { tensor, begin: begin + tensor.offset * bytesPerElement(dtype) });
      // What is read, not what is stored.
      tensors.set(name, {
        dtype,
        shape: tensor.shape,
        begin: 0,
        end: count(tensor) * bytesPerElement(dtype),
      });
    }
    this.tensors = tensors;
  }

  read(name: string): Uint8Array<ArrayBuffer> {
    const bytes = new Uint8Array(this.#entry(name).end);
    this.readInto(name, bytes);
    return bytes;
  }

  readInto(name: string, buffer: Uint8Array, offset = 0): number {
    const { end } = this.#entry(name);
    if (!Number.isInteger(offset) || offset < 0 || offset + end > buffer.length)
      throw new RangeError(
        `tensor '${name}' has ${end} bytes: expected room for them at ${offset} of ${buffer.length}`,
      );
    const { tensor, begin } = this.#stored.get(name)!;
    const into = buffer.subarray(offset, offset + end);
    if (isDense(tensor)) readFully(this.path, this.#open(), into, begin);
    else if (end > 0) gather(this.#span(tensor, begin), tensor, into);
    return end;
  }

  *readChunks(name: string, chunkBytes: number): Generator<Uint8Array<ArrayBuffer>> {
    if (!Number.isInteger(chunkBytes) || chunkBytes < 1)
      throw new RangeError(`expected chunkBytes to be a positive integer, found ${chunkBytes}`);
    const { end } = this.#entry(name);
    const { tensor, begin } = this.#stored.get(name)!;
    const whole = isDense(tensor) ? undefined : this.read(name);
    const buffer = new Uint8Array(whole ? 0 : Math.min(chunkBytes, end));
    for (let at = 0; at < end; at += chunkBytes) {
      const length = Math.min(chunkBytes, end - at);
      const chunk = whole ? whole.subarray(at, at + length) : buffer.subarray(0, length);
      if (!whole) readFully(this.path, this.#open(), chunk, begin + at);
      yield chunk;
    }
  }

  close(): void {
    if (this.#descriptor === undefined) return;
    closeSync(this.#descriptor);
    this.#descriptor = undefined;
  }

  /** Where the storage of a tensor begins in the file. */
  #place(name: string, { dtype, key, length }: Storage, entry: ZipEntry | undefined): number {
    if (entry === undefined)
      throw new WeightsError(`${this.path}: tensor '${name}': there is no storage ${show(key)}`);
    const [wanted, found] = [length * bytesPerElement(dtype), entry.end - entry.begin];
    if (wanted === found) return entry.begin;
    throw new WeightsError(
      `${this.path}: tensor '${name}': expected ${wanted} bytes in its storage ${show(key)}, found ${found}`,
    );
  }

  /** From the first to the last stored element of a tensor. */
  #span(tensor: Tensor, begin: number): Uint8Array {
    const last = tensor.shape.reduce(
      (sum, extent, i) => sum + (extent - 1) * (tensor.strides[i] as number),
      0,
    );
    const bytes = new Uint8Array((last + 1) * bytesPerElement(tensor.storage.dtype));
    readFully(this.path, this.#open(), bytes, begin);
    return bytes;
  }

  #bytes({ begin, end }: ZipEntry, most: number): Uint8Array<ArrayBuffer> {
    if (end - begin > most)
      throw new WeightsError(
        `${this.path}: expected at most ${most} bytes of description, found ${end - begin}`,
      );
    const bytes = new Uint8Array(end - begin);
    readFully(this.path, this.#open(), bytes, begin);
    return bytes;
  }

  #entry(name: string): TensorEntry {
    const entry = this.tensors.get(name);
    if (entry === undefined) throw new WeightsError(`${this.path}: there is no tensor ${show(name)}`);
    return entry;
  }

  #open(): number {
    if (this.#descriptor === undefined) throw new WeightsError(`${this.path}: the file has been closed`);
    return this.#descriptor;
  }
}

const count = ({ shape }: Tensor) => shape.reduce((product, extent) => product * extent, 1);

/** Whether the elements lie in the file as they are read: the last extent innermost, without a gap. */
function isDense({ shape, strides }: Tensor): boolean {
  let expected = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    const extent = shape[i] as number;
    if (extent !== 1 && strides[i] !== expected) return false;
    expected *= extent;
  }
  return true;
}

/** Elements in the order of their indices, the last index fastest. */
function gather(from: Uint8Array, { shape, strides, storage }: Tensor, into: Uint8Array): void {
  const width = bytesPerElement(storage.dtype);
  const index = shape.map(() => 0);
  let place = 0;
  for (let at = 0; at < into.length; at += width) {
    for (let byte = 0; byte < width; byte++) into[at + byte] = from[place * width + byte] as number;
    for (let i = shape.length - 1; i >= 0; i--) {
      place += strides[i] as number;
      index[i] = (index[i] as number) + 1;
      if (index[i] !== shape[i]) break;
      place -= (index[i] as number) * (strides[i] as number);
      index[i] = 0;
    }
  }
}
