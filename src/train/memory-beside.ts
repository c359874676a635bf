/** What a plan that does not fit says of whoever else has the memory. */
import { StepTrainError } from '../native/errors.js';
import type { Device } from '../runtime/device.js';
import { type GpuHolder, gpuHolders } from '../runtime/gpu-holders.js';
import { gibibytes } from './bytes.js';

type Measured = Pick<Device, 'info' | 'stats'>;

/** What a context of our own, a driver or a desktop holds: not worth a word. */
const NOTHING = { share: 0.05, bytes: 2 ** 30 };

/** What `settle` gives; an error for want of memory says who else holds it, or that the run has a share alone. */
export function besideOthers<T>(device: Measured, fraction: number, settle: () => T): T {
  try {
    return settle();
  } catch (error) {
    throw withOthers(error, device, fraction);
  }
}

/** An error for want of memory with whoever else has it; any other as it is. */
export function withOthers(error: unknown, device: Measured, fraction: number): unknown {
  if (!(error instanceof StepTrainError && error.code === 'E_MEMORY')) return error;
  const beside = memoryBeside(device, fraction);
  return beside === ''
    ? error
    : new StepTrainError('E_MEMORY', `${error.message}${beside}`, { ...error, cause: error });
}

/** A half sentence, or nothing where the device is this program's alone and all of it is planned for. */
export function memoryBeside(device: Measured, fraction: number, holders = gpuHolders): string {
  const { name, memoryTotal, memoryFree } = device.info();
  const others = memoryTotal - memoryFree - device.stats().reservedBytes;
  if (name !== 'cpu' && others > Math.max(NOTHING.bytes, NOTHING.share * memoryTotal)) {
    const named = holders().map(namedHolder).join(', ');
    return (
      `. Other programs hold ${gibibytes(others)} of the ${gibibytes(memoryTotal)} of ${name}${named ? ` (${named})` : ''}: ` +
      'wait until they end, or begin each with a share of its own, such as --set run.memory_fraction=0.45 for two'
    );
  }
  return fraction < 0.9
    ? `; run.memory_fraction ${fraction} leaves the rest to others: raise it if there are none`
    : '';
}

function namedHolder({ pid, name, bytes }: GpuHolder): string {
  return `${name}, process ${pid}: ${gibibytes(bytes)}`;
}
