/** What the frozen weights of a base take, which of them are quantised, and why a configuration refuses that. */
import type { ModelConfig } from '../architectures/config.js';
import { modelWeights } from '../architectures/table.js';
import type { FrameConfig } from '../config/schema.js';
import { baseDirectory } from '../models/base.js';
import { chosenFormats } from '../models/quantize.js';
import type { Device } from '../runtime/device.js';
import type { CheckpointReader } from '../weights/checkpoint.js';
import { openCheckpoint } from '../weights/checkpoint.js';
import { quantizedBytes } from '../weights/quantized/format.js';
import { parameterCount } from './parameter-count.js';

export interface FrozenBase {
  readonly bytes: number;
  /** Such as "6.53B in nf4_double"; empty where none is quantised. */
  readonly quantized: string;
}

/** Of weights in the dtype of the model and, by `model.quantize`, in 4 or 8 bits, as `device` holds them. */
export function frozenBase(
  { base, dtype, quantize }: Pick<FrameConfig['model'], 'base' | 'dtype' | 'quantize'>,
  decoder: ModelConfig,
  device: Pick<Device, 'info'>,
): FrozenBase {
  const specs = modelWeights(decoder);
  const reader = quantize === 'keep' && typeof base === 'string' ? stored(base) : undefined;
  try {
    const formats = chosenFormats(specs, reader ?? {}, quantize, device);
    const counts = new Map<string, number>();
    let bytes = 0;
    for (const { name, shape } of specs) {
      const values = shape.reduce((product, extent) => product * extent, 1);
      const chosen = formats.get(name);
      const format = chosen && ('stored' in chosen ? chosen.stored : chosen.made);
      bytes += format
        ? quantizedBytes(format, shape as readonly [number, number])
        : values * (dtype === 'bf16' ? 2 : 4);
      if (format) counts.set(format, (counts.get(format) ?? 0) + values);
    }
    return {
      bytes,
      quantized: [...counts].map(([format, values]) => `${parameterCount(values)} in ${format}`).join(', '),
    };
  } finally {
    reader?.close();
  }
}

/** The weights, where they are here; a plan needs no more than config.json. */
function stored(base: string): CheckpointReader | undefined {
  try {
    return openCheckpoint(baseDirectory(base));
  } catch {
    return undefined;
  }
}
