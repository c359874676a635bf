/**
 * Files of weights that torch.save wrote (`pytorch_model.bin`): a zip with a pickle, which describes the tensors, and
 * their storages. The pickle is data here; see `unpickle.ts`.
 */
import { bytesPerElement } from '../dtype.js';
import { show, WeightsError } from '../error.js';
import { openWeights, readFully } from '../file-bytes.js';
import { OpenWeights } from '../open-weights.js';
import { tensorNameProblem } from '../safetensors.js';
import type { TensorEntry, WeightsFile } from '../weights-file.js';
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

class TorchFile extends OpenWeights {
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  readonly #stored = new Map<string, { readonly tensor: Tensor; readonly begin: number }>();

  constructor(path: string, descriptor: number, entries: ReadonlyMap<string, ZipEntry>) {
    super(path, descriptor);
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
      // Extent and dtype are those of the values as read, not as stored.
      tensors.set(name, {
        dtype,
        shape: tensor.shape,
        begin: 0,
        end: count(tensor) * bytesPerElement(dtype),
      });
    }
    this.tensors = tensors;
  }

  protected placeOf(name: string): number | undefined {
    const { tensor, begin } = this.#stored.get(name)!;
    return isDense(tensor) ? begin : undefined;
  }

  protected override gather(name: string, into: Uint8Array): void {
    const { tensor, begin } = this.#stored.get(name)!;
    if (into.length > 0) gather(this.#span(tensor, begin), tensor, into);
  }

  /** Position in the file of a tensor's storage. */
  #place(name: string, { dtype, key, length }: Storage, entry: ZipEntry | undefined): number {
    if (entry === undefined)
      throw new WeightsError(`${this.path}: tensor '${name}': there is no storage ${show(key)}`);
    const [wanted, found] = [length * bytesPerElement(dtype), entry.end - entry.begin];
    if (wanted === found) return entry.begin;
    throw new WeightsError(
      `${this.path}: tensor '${name}': expected ${wanted} bytes in its storage ${show(key)}, found ${found}`,
    );
  }

  /** The bytes from the first to the last stored element of a tensor. */
  #span(tensor: Tensor, begin: number): Uint8Array {
    const last = tensor.shape.reduce(
      (sum, extent, i) => sum + (extent - 1) * (tensor.strides[i] as number),
      0,
    );
    const bytes = new Uint8Array((last + 1) * bytesPerElement(tensor.storage.dtype));
    this.fill(bytes, begin);
    return bytes;
  }

  #bytes({ begin, end }: ZipEntry, most: number): Uint8Array<ArrayBuffer> {
    if (end - begin > most)
      throw new WeightsError(
        `${this.path}: expected at most ${most} bytes of description, found ${end - begin}`,
      );
    const bytes = new Uint8Array(end - begin);
    this.fill(bytes, begin);
    return bytes;
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
