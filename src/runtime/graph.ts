import type { NativeDevice } from '../native/addon.js';
import { DisposedError } from '../native/errors.js';

/** The device that it was recorded on. */
interface Recorder {
  readonly isDisposed: boolean;
}

/** Ops recorded by `device.capture`. Owns its memory; equal to running the ops eagerly, bit for bit. */
export class Graph<T> {
  private disposed = false;

  constructor(
    private readonly device: Recorder,
    private readonly native: NativeDevice,
    private readonly id: number,
    /** The result of the captured function. Its tensors hold the values of the latest replay. */
    readonly result: T,
  ) {}

  /** Queues all recorded ops in one call. */
  replay(): void {
    if (this.disposed || this.device.isDisposed) throw new DisposedError('a graph');
    this.native.replay(this.id);
  }

  dispose(): void {
    if (this.disposed) return;
    this.disposed = true;
    if (!this.device.isDisposed) this.native.releaseGraph(this.id);
  }
}

/** See `Device.graphPool`. Its memory is freed once it and all graphs and tensors in it are disposed. */
export class GraphPool {
  private disposed = false;

  /** @internal */
  constructor(
    private readonly device: Recorder,
    private readonly native: NativeDevice,
    private readonly number: number,
  ) {}

  /** @internal Throws DisposedError. */
  get id(): number {
    if (this.disposed || this.device.isDisposed) throw new DisposedError('a pool of graphs');
    return this.number;
  }

  dispose(): void {
    if (this.disposed) return;
    this.disposed = true;
    if (!this.device.isDisposed) this.native.releasePool(this.number);
  }
}
