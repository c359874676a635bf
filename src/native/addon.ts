/**
 * The typed mirror of the whole addon: the only file of src/ that knows what binding/ exports.
 * test/native/addon.test.ts compares it with the loaded binary.
 */
import { StepTrainError } from './errors.js';
import { type LoadedAddon, loadAddon } from './loader.js';

/** Shape of the exported `Device` class; see binding/device.h. Handles are integers, 0 meaning absent. */
export interface NativeDevice {
  enqueue(): void;
  allocate(dtype: number, shape: readonly number[]): number;
  view(handle: number, offset: number, shape: readonly number[]): number;
  release(handle: number): void;
  upload(handle: number, array: ArrayBufferView): void;
  download(handle: number): Promise<ArrayBuffer>;
  /** Sums in host memory, outside the queue: see `Device.sumAcross`. */
  sumAcross(
    communicator: number,
    rows: readonly number[],
    result: number,
    scratch: number,
    counts: readonly number[],
    begins: readonly number[],
    pairs: readonly number[],
    root: number,
    wanted: readonly number[],
  ): Promise<void>;
  synchronize(): Promise<void>;
  newPool(): number;
  releasePool(pool: number): void;
  beginCapture(pool: number): void;
  endCapture(keep: boolean): number;
  replay(graph: number): void;
  releaseGraph(graph: number): void;
  scope(label: string | number): number;
  info(): DeviceInfo;
  stats(): DeviceStats;
  resetPeak(): void;
  dispose(): void;
}

export interface DeviceInfo {
  readonly name: string;
  readonly description: string;
  /** Instruction set of the kernels: amx, avx512bf16, avx512, avx2, neonbf16, neon, portable, or sm_XY. */
  readonly isa: string;
  readonly threads: number;
  readonly memoryTotal: number;
  readonly memoryFree: number;
}

export interface DeviceStats {
  readonly liveBytes: number;
  readonly peakBytes: number;
  readonly reservedBytes: number;
  readonly tensors: number;
  readonly ops: number;
  /** Parallel regions on the CPU, kernels on CUDA. */
  readonly launches: number;
  /** Max workspace of an op so far. */
  readonly scratchBytes: number;
  /**
   * Number of times that the queue's thread waited for a GPU: reads, `synchronize`, uploads that found all buffers
   * full.
   */
  readonly waits: number;
  /** Seconds spent in CPU kernels so far; 0 on a GPU, whose kernels are not timed. */
  readonly kernelSeconds: number;
}

/** An op of core/ops.cc; its number is its place in `signatures()`. */
export interface OpSignature {
  readonly name: string;
  readonly text: string;
  readonly inputs: readonly OpTensor[];
  readonly outputs: readonly OpTensor[];
  readonly scalars: readonly OpScalar[];
}

interface OpTensor {
  readonly name: string;
  readonly optional: boolean;
}

export interface OpScalar {
  readonly name: string;
  /** f, i, bool, or its names as `a|b|c`. */
  readonly type: string;
  /** Allowed names if it is not a number; a name's value is its index in the list. */
  readonly names: readonly string[];
  /** Its default as a number; a scalar without one is required. */
  readonly fallback?: number;
}

/** `communicator` is what ops take. */
export interface OpenedCarrier {
  readonly communicator: number;
  readonly rank: number;
  readonly size: number;
}

export interface NativeAddon {
  readonly Device: new (
    name: string,
    threads: number,
    isa: string,
    memoryLimit: number | undefined,
    commands: Float64Array,
  ) => NativeDevice;
  readonly commandLength: number;
  signatures(): OpSignature[];
  /** Instruction sets of this processor and build, best first. */
  isas(): string[];
  /** Instruction sets of this processor that this build leaves out. */
  unbuiltIsas(): string[];
  cudaDevices(): string[] | undefined;
  /** Why `cudaDevices()` lists none; empty where it does, undefined where the addon was built without CUDA. */
  cudaObstacle(): string | undefined;
  /** Opens the plugin of an MPI; waits for the other processes. */
  openPlugin(path: string): Promise<OpenedCarrier>;
  /**
   * Opens memory that the processes of a machine share; `path`: a file in memory, which rank 0 makes before the others
   * open it.
   */
  openShared(path: string, rank: number, size: number): Promise<OpenedCarrier>;
  /** `library`: its path, or '' for the one that the system has. */
  ncclId(library: string): Promise<ArrayBuffer>;
  /** @param gpu below 0: none */
  openNccl(library: string, id: ArrayBuffer, rank: number, size: number, gpu: number): Promise<OpenedCarrier>;
  /** Makes pending ops of the carrier fail. */
  cancelCarrier(communicator: number): void;
  closeCarrier(communicator: number): Promise<void>;
  initialize(
    errorFactory: (
      code: StepTrainError['code'],
      message: string,
      hint: string,
      location: string,
      op: string,
      opNumber: number,
      scope: string,
    ) => Error,
  ): void;
}

/** Slots of the command array; mirrors binding/device.h. */
export const COMMAND = { tensors: 1, scalars: 25, number: 41, outputs: 42 } as const;

let loaded: NativeAddon | undefined;
let source: LoadedAddon | undefined;

/** The file that `addon()` loaded, and earlier failures; undefined before its first call. */
export const addonSource = (): Omit<LoadedAddon, 'native'> | undefined => source;

/** Loads the addon once per environment. A failure lists the tries and the remedy. */
export function addon(): NativeAddon {
  if (loaded) return loaded;
  source = loadAddon();
  const native = source.native as NativeAddon;
  native.initialize((code, message, hint, location, op, opNumber, scope) => {
    const where = op ? ` (op ${op} #${opNumber}${scope ? ` in ${scope}` : ''})` : '';
    return new StepTrainError(code, `${message}${where}${hint ? `; ${hint}` : ''}`, {
      hint,
      location,
      op,
      opNumber,
      scope,
    });
  });
  loaded = native;
  return native;
}
