/** Options of opening a device, checked and completed from the environment. */
import { availableParallelism } from 'node:os';
import { checkOptions, invalid } from '../native/errors.js';
import { shown } from '../native/shown.js';
import { MEMORY_FRACTION } from './memory.js';

export interface DeviceOptions {
  /** CPU threads; 0 for one per usable core. Default: STEPTRAIN_THREADS, else 0. */
  readonly threads?: number | undefined;
  /** Instruction set of the CPU kernels. Default: STEPTRAIN_ISA, else the best this processor has. */
  readonly isa?: string | undefined;
  /** Max bytes of all tensors, in segments of whole MiB; workspace is not counted. Default: no limit. */
  readonly memoryLimit?: number | undefined;
  /** Share of the device's memory that what runs on it plans for, above 0 and at most 1. Default 0.9. */
  readonly memoryFraction?: number | undefined;
}

const OPTIONS: Record<keyof DeviceOptions, true> = {
  threads: true,
  isa: true,
  memoryLimit: true,
  memoryFraction: true,
};

/** More threads than this only wait for each other; tens of thousands cannot even be started. */
const THREADS_PER_CORE = 16;

/** Options without gaps. */
export type CheckedOptions = {
  readonly [Name in 'threads' | 'isa' | 'memoryFraction']-?: NonNullable<DeviceOptions[Name]>;
} & {
  readonly memoryLimit: number | undefined;
};

/** @throws StepTrainError for an option or a variable that no device can have */
export function checkedOptions(options: DeviceOptions): CheckedOptions {
  checkOptions('openDevice', options, OPTIONS);
  const { memoryLimit, memoryFraction = MEMORY_FRACTION } = options;
  const threads = options.threads ?? positiveInteger('STEPTRAIN_THREADS') ?? 0;
  const most = THREADS_PER_CORE * availableParallelism();
  if (!Number.isInteger(threads) || threads < 0 || threads > most)
    throw refusal(
      `threads: expected a whole number from 0 (one per core) to ${most} on this machine, found`,
      threads,
    );
  if (!(memoryFraction > 0 && memoryFraction <= 1))
    throw refusal('openDevice: memoryFraction must be a number above 0, at most 1, got', memoryFraction);
  if (memoryLimit !== undefined && !(Number.isSafeInteger(memoryLimit) && memoryLimit > 0))
    throw refusal('openDevice: memoryLimit must be a whole number of bytes above 0, got', memoryLimit);
  return { threads, isa: options.isa ?? process.env.STEPTRAIN_ISA ?? '', memoryLimit, memoryFraction };
}

function positiveInteger(variable: string): number | undefined {
  const text = process.env[variable];
  if (text === undefined || text === '') return undefined;
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1)
    throw refusal(`${variable} must be a whole number of at least 1, got`, text);
  return value;
}

const refusal = (rule: string, found: unknown) => invalid(`${rule} ${shown(found)}`);
