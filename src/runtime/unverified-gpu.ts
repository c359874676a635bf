import type { DeviceInfo } from '../native/addon.js';

/** What nobody has seen of a GPU: its kernels have met one kind, docs/evidence/h100.md. Undefined where that says nothing. */
export function unverified({ name, description, isa }: DeviceInfo): string | undefined {
  if (name === 'cpu' || isa === 'sm_90') return undefined;
  return (
    `${name} (${description}, ${isa}): the CUDA kernels have run on an H100 alone; scripts/device/run.sh of a clone tests ` +
    'them on this GPU, --set run.device=cpu does without them'
  );
}
