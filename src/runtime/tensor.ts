import { DisposedError, StepTrainError } from '../native/errors.js';
import { shown } from '../native/shown.js';
import { unwatch, watch } from './abandoned.js';
import type { Device } from './device.js';

export type DType = 'f32' | 'bf16' | 'i32' | 'u8';
export type TypedArray = Float32Array | Uint16Array | Int32Array | Uint8Array;

export const DTYPES: readonly DType[] = ['f32', 'bf16', 'i32', 'u8'];

/** One native handle, shared by a tensor and whatever holds on to it (tape entries, parameter lists). */
export class Storage {
  references = 1;
  constructor(
    readonly device: Device,
    readonly handle: number,
  ) {}
  release(): void {
    if (--this.references === 0) this.device.releaseHandle(this.handle);
  }
}

/**
 * A window on device memory: dtype, shape, and a reference to a buffer. Call `dispose()`, or make it inside `device.scope`; one that
 * leaves every scope and is then forgotten is freed when the garbage collector finds it, with a warning.
 */
export class Tensor {
  private disposed = false;
  private watched = false;

  /** @internal Tensors come from `device.tensor` and from ops. */
  constructor(
    private readonly storage: Storage,
    readonly shape: readonly number[],
    readonly dtype: DType,
    /** The op that made it. */
    private readonly origin: string,
  ) {}

  get device(): Device {
    return this.storage.device;
  }

  get size(): number {
    return this.shape.reduce((product, extent) => product * extent, 1);
  }

  /** The native handle. Throws DisposedError. */
  get handle(): number {
    if (this.disposed) throw new DisposedError(`a ${this.dtype} tensor of shape [${this.shape.join(', ')}]`);
    return this.storage.handle;
  }

  /** A second owner of the same tensor, with a `dispose()` of its own. */
  alias(): Tensor {
    if (this.disposed) throw new DisposedError('a tensor');
    this.storage.references++;
    return new Tensor(this.storage, this.shape, this.dtype, this.origin);
  }

  /** The same elements under another shape. Shares the buffer. */
  reshape(shape: readonly number[]): Tensor {
    return this.view(0, shape);
  }

  /** Rows `begin` to `end` (exclusive) of the first axis. Shares the buffer. */
  slice(begin: number, end: number): Tensor {
    const [rows = 0, ...rest] = this.shape;
    if (!(Number.isInteger(begin) && Number.isInteger(end) && 0 <= begin && begin <= end && end <= rows)) {
      throw new StepTrainError(
        'E_RANGE',
        `slice ${shown(begin)}..${shown(end)} lies outside the ${rows} rows of the tensor`,
      );
    }
    const stride = rest.reduce((product, extent) => product * extent, 1);
    return this.view(begin * stride, [end - begin, ...rest]);
  }

  /** A window of `shape`, `offset` elements into this one. Shares the buffer. */
  view(offset: number, shape: readonly number[]): Tensor {
    return this.device.adopt(this.device.viewHandle(this.handle, offset, shape), shape, this.dtype, 'view');
  }

  /** Values once everything queued before has run: f32 and bf16 as Float32Array, i32 and u8 as themselves. */
  async read(): Promise<Float32Array | Int32Array | Uint8Array> {
    const buffer = await this.device.readHandle(this.handle);
    switch (this.dtype) {
      case 'f32':
        return new Float32Array(buffer);
      case 'bf16':
        return bf16ToFloat32(new Uint16Array(buffer));
      case 'i32':
        return new Int32Array(buffer);
      case 'u8':
        return new Uint8Array(buffer);
    }
  }

  /** As `read`, for f32 and bf16. */
  async readFloats(): Promise<Float32Array> {
    const values = await this.read();
    if (values instanceof Float32Array) return values;
    throw new StepTrainError('E_DTYPE', `expected an f32 or bf16 tensor, got ${this.dtype}`);
  }

  /** The stored bytes, unconverted. */
  readBytes(): Promise<ArrayBuffer> {
    return this.device.readHandle(this.handle);
  }

  /** Overwrites the values, in the queue's order. The array is copied at the call; bf16 takes bits or floats. */
  write(values: TypedArray): void {
    this.device.writeHandle(this.handle, toStorage(values, this.dtype));
  }

  /** Drops this owner's reference. A second call does nothing. */
  dispose(): void {
    if (this.disposed) return;
    this.disposed = true;
    if (this.watched) unwatch(this);
    this.storage.release();
  }

  /** @internal Called when it outlives every scope. */
  leave(scope: string): void {
    if (this.watched || this.disposed) return;
    this.watched = true;
    watch(this, this.storage, `${this.origin} ${scope}`);
  }

  /** Whether another owner (an alias) holds the same handle. */
  get isShared(): boolean {
    return this.storage.references > 1;
  }

  get isDisposed(): boolean {
    return this.disposed;
  }
}

export function bf16ToFloat32(bits: Uint16Array): Float32Array {
  const words = new Uint32Array(bits.length);
  for (let i = 0; i < bits.length; i++) words[i] = (bits[i] as number) << 16;
  return new Float32Array(words.buffer);
}

/** Rounds to nearest even; NaN stays NaN. */
export function float32ToBf16(values: Float32Array): Uint16Array {
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const bits = new Uint16Array(values.length);
  for (let i = 0; i < words.length; i++) {
    const word = words[i] as number;
    const nan = (word & 0x7fffffff) > 0x7f800000;
    bits[i] = nan ? (word >>> 16) | 0x40 : (word + 0x7fff + ((word >>> 16) & 1)) >>> 16;
  }
  return bits;
}

const STORAGE: Record<DType, string> = {
  f32: 'Float32Array',
  bf16: 'Uint16Array (bits) or Float32Array',
  i32: 'Int32Array',
  u8: 'Uint8Array',
};

function toStorage(values: TypedArray, dtype: DType): TypedArray {
  if (dtype === 'bf16' && values instanceof Float32Array) return float32ToBf16(values);
  const fits =
    (dtype === 'f32' && values instanceof Float32Array) ||
    (dtype === 'bf16' && values instanceof Uint16Array) ||
    (dtype === 'i32' && values instanceof Int32Array) ||
    (dtype === 'u8' && values instanceof Uint8Array);
  if (!fits) {
    throw new StepTrainError(
      'E_DTYPE',
      `a ${dtype} tensor takes ${STORAGE[dtype]}, got ${values.constructor.name}`,
    );
  }
  // The addon cannot be handed memory that another thread may change meanwhile.
  return values.buffer instanceof ArrayBuffer ? values : values.slice();
}
