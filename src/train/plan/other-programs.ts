/** Says how much memory other programs hold where a plan does not fit. */
import { StepTrainError } from '../../native/errors.js';
import type { Device } from '../../runtime/device.js';
import { gibibytes } from './bytes.js';

type Measured = Pick<Device, 'info' | 'stats'>;

/** Memory of our own context, a driver or a desktop, which is not mentioned. */
const NOTHING = { share: 0.05, bytes: 2 ** 30 };

/**
 * The result of `settle`. An error for want of memory says what others hold, or that the run has only a share.
 */
export function besideOthers<T>(device: Measured, fraction: number, settle: () => T): T {
  try {
    return settle();
  } catch (error) {
    throw withOthers(error, device, fraction);
  }
}

/** An error for want of memory that says what others hold; any other error unchanged. */
export function withOthers(error: unknown, device: Measured, fraction: number): unknown {
  if (!(error instanceof StepTrainError && error.code === 'E_MEMORY')) return error;
  const beside = memoryBeside(device, fraction);
  return beside === ''
    ? error
    : new StepTrainError('E_MEMORY', `${error.message}${beside}`, { ...error, cause: error });
}

/** A half sentence, or nothing where the device is this program's alone and all of it is planned for. */
function memoryBeside(device: Measured, fraction: number): string {
  const { name, memoryTotal, memoryFree } = device.info();
  const others = memoryTotal - memoryFree - device.stats().reservedBytes;
  if (name !== 'cpu' && others > Math.max(NOTHING.bytes, NOTHING.share * memoryTotal)) {
    return (
      `. Other programs hold ${gibibytes(others)} of the ${gibibytes(memoryTotal)} of ${name}: ` +
      'wait until they end, or begin each with a share of its own, such as --set run.memory_fraction=0.45 for two'
    );
  }
  return fraction < 0.9
    ? `; run.memory_fraction ${fraction} leaves the rest to others: raise it if there are none`
    : '';
}
