import { totalmem } from 'node:os';
import { inspect } from 'node:util';
import { addon, COMMAND, type DeviceInfo, type DeviceStats, type NativeDevice } from '../native/addon.js';
import { DisposedError, invalid, StepTrainError } from '../native/errors.js';
import { plural, shown } from '../native/shown.js';
import { unwatch, watch } from './abandoned.js';
import { refuseWithoutCuda } from './chosen-device.js';
import { type CheckedOptions, checkedOptions, type DeviceOptions } from './device-options.js';
import {
  bf16ToFloat32,
  DTYPES,
  type DType,
  kindOf,
  type TypedArray,
  toStorage,
  typedArray,
} from './dtype.js';
import { Graph, GraphPool } from './graph.js';
import { opsOf } from './op-call.js';
import type { OpsOf } from './op-types.js';

export type { DeviceOptions } from './device-options.js';

/** Number of call stacks that STEPTRAIN_STACKS=1 remembers. */
const STACKS = 16_384;

/** Opens `cpu`, `cuda:0`, … . Everything that is made on it ends with its `dispose()`. */
export function openDevice(name = 'cpu', options: DeviceOptions = {}): Device {
  refuseWithoutCuda(name);
  return new Device(name, checkedOptions(options));
}

/** Every op of core/ops.cc by its name. */
export type Ops = OpsOf<Tensor>;

/** One processor with its own memory and an in-order queue. Ops return at once; only `read` and `synchronize` wait. */
export class Device {
  /**
   * Every op of core/ops.cc by its name: inputs, scalars and outputs to write into go in by name, outputs come back by
   * name. An optional output is made where it is asked for with `true`.
   *
   *     const { y, sum } = device.ops.rmsnorm({ x, residual, weight, eps: 1e-6, sum: true });
   */
  readonly ops: Ops;
  private readonly commands: Float64Array;
  private readonly native: NativeDevice;
  private readonly scopes: Tensor[][] = [];
  private readonly stacks: string[] | undefined = process.env.STEPTRAIN_STACKS === '1' ? [] : undefined;
  private disposed = false;
  private capturing = false;
  private failed: StepTrainError | undefined;

  private readonly memoryLimit: number | undefined;
  /** Share of the memory that what runs here plans for. */
  readonly memoryFraction: number;

  /** @internal Devices come from `openDevice`. */
  constructor(name: string, { threads, isa, memoryLimit, memoryFraction }: CheckedOptions) {
    this.memoryLimit = memoryLimit;
    this.memoryFraction = memoryFraction;
    this.commands = new Float64Array(addon().commandLength);
    this.native = new (addon().Device)(name, threads, isa, memoryLimit, this.commands);
    this.ops = opsOf<Tensor>(this.commands, {
      enqueue: () => this.enqueue(),
      handleOf: (value) => (value instanceof Tensor && value.device === this ? value.handle : undefined),
      isTensor: (value) => value instanceof Tensor,
      adopt: (handle, shape, dtype, op) => this.adopt(handle, shape, dtype, op),
    });
  }

  info(): DeviceInfo {
    const info = this.open.info();
    // Node knows the limits of a container; memory free for Node is free for tensors on the CPU.
    const onCpu = info.name === 'cpu';
    const constrained = process.constrainedMemory() || Number.POSITIVE_INFINITY;
    const limit = this.memoryLimit ?? Number.POSITIVE_INFINITY;
    return {
      ...info,
      memoryTotal: Math.min(onCpu ? Math.min(totalmem(), constrained) : info.memoryTotal, limit),
      memoryFree: Math.min(
        onCpu ? process.availableMemory() : info.memoryFree,
        limit - this.open.stats().reservedBytes,
      ),
    };
  }
  stats(): DeviceStats {
    return this.open.stats();
  }
  /** Starts a new measurement of `stats().peakBytes`. */
  resetPeak(): void {
    this.open.resetPeak();
  }

  /** A tensor of undefined content. */
  empty(shape: readonly number[], dtype: DType = 'f32'): Tensor {
    const code = DTYPES.indexOf(dtype);
    if (code < 0)
      throw new StepTrainError('E_DTYPE', `a tensor is of ${DTYPES.join(', ')}, found ${shown(dtype)}`);
    if (!Array.isArray(shape))
      throw new StepTrainError(
        'E_SHAPE',
        `expected a shape such as [2, 3], found ${shown(shape)}; a tensor is made by tensor(values, shape, dtype)`,
      );
    return this.adopt(this.working.allocate(code, shape), shape, dtype, 'device.empty, zeros or tensor');
  }

  zeros(shape: readonly number[], dtype: DType = 'f32'): Tensor {
    const tensor = this.empty(shape, dtype);
    this.ops.fill({ x: tensor, value: 0 });
    return tensor;
  }

  /** Copies `values` at the call. dtype defaults to the array's own kind; bf16 takes bits or floats. */
  tensor(
    values: TypedArray,
    shape: readonly number[] = [typedArray(values).length],
    dtype: DType = kindOf(values),
  ): Tensor {
    const tensor = this.empty(shape, dtype);
    try {
      if (typedArray(values).length !== tensor.size)
        throw new StepTrainError(
          'E_SHAPE',
          `a tensor of shape [${shape.join(', ')}] takes ${tensor.size} numbers, got ${values.length}`,
        );
      tensor.write(values);
    } catch (error) {
      tensor.dispose();
      throw error;
    }
    return tensor;
  }

  private enqueue(): void {
    this.working.enqueue();
    if (this.stacks)
      this.stacks[(this.commands[COMMAND.number] as number) % STACKS] = new Error().stack ?? '';
  }

  /**
   * Runs `fn` and disposes every tensor that it made, except those in its result (at any depth of arrays, maps and
   * plain objects). Synchronous: a returned promise throws. `label` names the ops in error messages.
   */
  scope<T>(fn: () => T, label?: string): T {
    const made: Tensor[] = [];
    this.scopes.push(made);
    const outer = label === undefined ? undefined : this.enterLabel(label);
    let result: T | undefined;
    try {
      result = fn();
      if (
        result instanceof Promise ||
        typeof (result as { then?: unknown } | undefined)?.then === 'function'
      ) {
        throw new StepTrainError('E_SCOPE', 'device.scope is synchronous: its function returned a promise');
      }
      return result;
    } finally {
      this.scopes.pop();
      if (outer !== undefined) this.label = this.open.scope(outer);
      const kept = new Set<Tensor>();
      collect(result, kept);
      const parent = this.scopes.at(-1);
      for (const tensor of made) {
        if (kept.has(tensor)) {
          if (parent) parent.push(tensor);
          else tensor.leave(label === undefined ? 'in a scope without a label' : `in scope ${label}`);
        } else if (!this.disposed) tensor.dispose();
      }
    }
  }

  private label = 0;
  private readonly labels = new Map<string, number>();
  private enterLabel(label: string): number {
    const outer = this.label;
    const known = this.labels.get(label);
    this.label = this.open.scope(known ?? label);
    if (known === undefined) this.labels.set(label, this.label);
    return outer;
  }

  /** Lets a tensor outlive the scopes that are open now. */
  keep<T extends Tensor>(tensor: T): T {
    this.take(tensor).leave('and kept by device.keep');
    return tensor;
  }

  /** @internal As `keep`, for owners that are sure to dispose it: the garbage collector need not watch. */
  take<T extends Tensor>(tensor: T): T {
    for (const made of this.scopes) {
      const at = made.indexOf(tensor);
      if (at >= 0) made.splice(at, 1);
    }
    return tensor;
  }

  /**
   * Records the ops that `fn` queues instead of running them. Inputs and state must be made before; reads, uploads
   * and new tensors inside throw. The result's tensors are the graph's outputs, rewritten by every `replay()`, with a
   * `pool` by those of its other graphs too.
   */
  capture<T>(fn: () => T, pool?: GraphPool): Graph<T> {
    if (this.capturing) throw new StepTrainError('E_CAPTURE', 'captures do not nest');
    this.working.beginCapture(pool?.id ?? 0);
    this.capturing = true;
    let result: T;
    try {
      result = this.scope(fn);
    } catch (error) {
      this.native.endCapture(false);
      throw error;
    } finally {
      this.capturing = false;
    }
    return new Graph(this, this.native, this.native.endCapture(true), result);
  }

  /** Memory that captures share, as large as the largest needs: their outputs stand only until another of them is replayed. */
  graphPool(): GraphPool {
    return new GraphPool(this, this.native, this.open.newPool());
  }

  /**
   * @internal Adds a piece of a flat buffer over the processes of a job, in host memory, on a thread of its own. It is
   * no op of the queue: its inputs must have been computed, and nothing that is queued may touch them before this
   * resolves.
   */
  async sumAcross(communicator: number, piece: PieceOfSum): Promise<void> {
    const { rows, result, scratch, counts, begins, pairs, root } = piece;
    const handles = rows.map(({ handle }) => handle);
    const order = pairs.flat();
    const wanted = piece.wanted.flatMap(({ begin, end }) => [begin, end]);
    await this.open.sumAcross(
      ...([communicator, handles, result.handle, scratch.handle] as const),
      ...([counts, begins, order, root, wanted] as const),
    );
  }

  /** Resolves when everything queued so far has run; rejects with what failed. */
  async synchronize(): Promise<void> {
    await this.waited(this.working.synchronize());
  }

  /**
   * The failure of an op: a bad index, an error of the GPU. Nothing is computed after it, and later calls are refused
   * with E_DEVICE_FAILED, except `info`, `stats` and `dispose`. It is known once something has waited for it.
   */
  get failure(): StepTrainError | undefined {
    return this.failed;
  }

  /** Cancels queued ops, waits for the running one and frees everything. */
  dispose(): void {
    if (this.disposed) return;
    this.disposed = true;
    this.native.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  get isDisposed(): boolean {
    return this.disposed;
  }

  [inspect.custom](): string {
    if (this.disposed) return 'Device { disposed }';
    const { name, isa, threads } = this.open.info();
    const { tensors, liveBytes } = this.open.stats();
    const failed = this.failed ? `, failed: ${this.failed.message}` : '';
    const on = name === 'cpu' ? `${isa}, ${plural(threads, 'thread')}` : isa;
    return `Device { ${name}, ${on}, ${tensors} tensors of ${liveBytes} bytes${failed} }`;
  }

  /** Wraps a native handle that the caller owns, as part of the innermost scope. `origin`: the op that made it. */
  adopt(handle: number, shape: readonly number[], dtype: DType, origin: string): Tensor {
    const tensor = new Tensor(new Storage(this, handle), shape, dtype, origin);
    const scope = this.scopes.at(-1);
    if (scope) scope.push(tensor);
    else tensor.leave('outside of any scope');
    return tensor;
  }

  releaseHandle(handle: number): void {
    if (!this.disposed) this.native.release(handle);
  }
  viewHandle(handle: number, offset: number, shape: readonly number[]): number {
    return this.open.view(handle, offset, shape);
  }
  writeHandle(handle: number, values: TypedArray): void {
    this.working.upload(handle, values);
  }
  async readHandle(handle: number): Promise<ArrayBuffer> {
    return this.waited(this.working.download(handle));
  }

  /** A wait for the queue rejects where an op has failed, which no later op survives, or where the device was disposed meanwhile. */
  private async waited<T>(wait: Promise<T>): Promise<T> {
    try {
      return await wait;
    } catch (error) {
      if (error instanceof StepTrainError && error.code !== 'E_CANCELLED') this.failed ??= error;
      throw this.withStack(error);
    }
  }

  private get open(): NativeDevice {
    if (this.disposed) throw new DisposedError('the device');
    return this.native;
  }

  /** Like `open`, for calls that need computation. */
  private get working(): NativeDevice {
    const { open, failed: cause } = this;
    if (!cause) return open;
    throw new StepTrainError(
      'E_DEVICE_FAILED',
      `this device failed earlier (${cause.message}): dispose of it and open another`,
      { cause },
    );
  }

  private withStack(error: unknown): unknown {
    if (this.stacks && error instanceof StepTrainError && error.opNumber > 0) {
      const queued = this.stacks[error.opNumber % STACKS];
      if (queued) error.stack = `${error.stack}\nqueued by:\n${queued.split('\n').slice(4).join('\n')}`;
    }
    return error;
  }
}

/** The operands of `sumAcross`. Rows and result have the length of the piece, f32. */
export interface PieceOfSum {
  /** Sums of this process over runs of shards, which are overwritten. */
  readonly rows: readonly Tensor[];
  readonly result: Tensor;
  /** Buffer for arriving rows, of the same length in all processes. */
  readonly scratch: Tensor;
  /** Number of rows of each rank. */
  readonly counts: readonly number[];
  /** Start of the part that each rank adds; then the end. */
  readonly begins: readonly number[];
  /** The additions in their order, into the first of a pair: row i of rank r is number i · processes + r. */
  readonly pairs: readonly (readonly [into: number, other: number])[];
  /** The row that has the sum then. */
  readonly root: number;
  /** The elements whose sum each rank gets. */
  readonly wanted: readonly { readonly begin: number; readonly end: number }[];
}

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
      throw invalid(`slice ${shown(begin)}..${shown(end)} lies outside the ${rows} rows of the tensor`);
    }
    const stride = rest.reduce((product, extent) => product * extent, 1);
    return this.view(begin * stride, [end - begin, ...rest]);
  }

  /**
   * A window of `shape`, `offset` elements into this one; for packed weights it must be whole ones, [N, K] of [E, N,
   * K]. Shares the buffer.
   */
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

  /** Reads the values of an f32 or bf16 tensor. */
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

  [Symbol.dispose](): void {
    this.dispose();
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

/** Tensors within a scope's result. */
function collect(value: unknown, into: Set<Tensor>, seen = new Set<object>()): void {
  if (typeof value !== 'object' || value === null || seen.has(value)) return;
  if (value instanceof Tensor) {
    into.add(value);
    return;
  }
  seen.add(value);
  if (value instanceof Map) {
    for (const item of value.values()) collect(item, into, seen);
  } else if (Array.isArray(value) || value instanceof Set) {
    for (const item of value) collect(item, into, seen);
  } else if (!ArrayBuffer.isView(value) && !(value instanceof Device)) {
    for (const item of Object.values(value)) collect(item, into, seen);
  }
}
