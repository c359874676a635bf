import { UsageError } from '../line/error.js';

/** The device that `--device` names: auto is the first GPU where there is one. */
export async function chosenDevice(name = 'auto'): Promise<string> {
  if (!/^(auto|cpu|cuda(:\d+)?)$/.test(name))
    throw new UsageError(`--device expects auto, cpu, cuda or cuda:N, found ${name}`);
  if (name !== 'auto') return name;
  return (await import('../../runtime/chosen-device.js')).chosenDevice(name);
}
