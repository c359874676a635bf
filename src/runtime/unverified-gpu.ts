import type { DeviceInfo } from '../native/addon.js';

/**
 * A warning for a GPU of a kind that the kernels have never run on (research/h100.md has the one kind); undefined
 * otherwise.
 */
export function unverified({ name, description, isa }: DeviceInfo): string | undefined {
  if (name === 'cpu' || isa === 'sm_90') return undefined;
  return (
    `${name} (${description}, ${isa}): the CUDA kernels have run on an H100 alone; scripts/device/run.sh of a clone tests ` +
    'them on this GPU, --set run.device=cpu does without them'
  );
}
