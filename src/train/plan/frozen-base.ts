/**
 * Bytes of a base's frozen weights, those of them that are quantised, and the reason why a configuration refuses
 * quantisation.
 */
import type { ModelConfig } from '../../architectures/config.js';
import { modelWeights } from '../../architectures/table.js';
import type { FrameConfig } from '../../config/schema.js';
import { baseDirectory } from '../../models/base.js';
import { chosenFormats } from '../../models/quantize.js';
import { layerPlaces, partOf } from '../../models/sharded-layers.js';
import { attempt } from '../../native/attempt.js';
import { ending } from '../../native/ending.js';
import type { Device } from '../../runtime/device.js';
import { openCheckpoint } from '../../weights/checkpoint.js';
import type { ModuleKind } from '../../weights/modules.js';
import { quantizedBytes } from '../../weights/quantized/format.js';
import { parameterCount } from './parameter-count.js';

export interface FrozenBase {
  readonly bytes: number;
  /** Description, such as "6.53B in nf4_double"; empty if nothing is quantised. */
  readonly quantized: string;
  /** Bytes that products take for the dequantised weights of one of them, on a GPU; 0 on the CPU. */
  readonly workspace: number;
  /** Processes that hold the layers together. */
  readonly holders: number;
  /** Number of layers that are whole at once. */
  readonly whole: number;
}

/** Bytes of a value: a CPU has codes of six bits as bytes, and of 256 sixteen scales of a byte and a half. */
const Q6_K_ON_CPU = (256 + 16 + 2) / 256;

/**
 * Rows of a weight that a CPU's products read lie together in so many, the last of them filled up: two vectors of floats
 * (`kPanel` of cpu/gemm/packed.h).
 */
function panelRows(isa: string): number {
  if (/^(avx512|amx)/.test(isa)) return 32;
  return isa === 'avx2' ? 16 : 8;
}

/** The memory of frozen weights in the dtype of the model and, by `model.quantize`, in 4 or 8 bits, on `device`. */
export function frozenBase(
  { base, dtype, quantize }: Pick<FrameConfig['model'], 'base' | 'dtype' | 'quantize'>,
  decoder: ModelConfig,
  device: Pick<Device, 'info'>,
  holders = 1,
  slots = 1,
): FrozenBase {
  const specs = modelWeights(decoder);
  using reader = quantize === 'keep' && typeof base === 'string' ? stored(base) : undefined;
  const formats = chosenFormats(specs, reader ?? {}, quantize);
  const counts = new Map<string, number>();
  const products = new Map<string, number>();
  const perValue = dtype === 'bf16' ? 2 : 4;
  const { name: on, isa } = device.info();
  const onCpu = on === 'cpu';
  const panel = panelRows(isa);
  let bytes = 0;
  for (const { name, shape, kind } of specs) {
    const values = shape.reduce((product, extent) => product * extent, 1);
    const [rows = 0, features] = shape;
    // Norms and biases are in f32.
    if (features === undefined) {
      bytes += rows * 4;
      continue;
    }
    const chosen = formats.get(name);
    const format = chosen && ('stored' in chosen ? chosen.stored : chosen.made);
    const packed = onCpu && holders === 1 && (format || kind !== 'embedding');
    const held = packed ? Math.ceil(rows / panel) * panel : rows;
    if (format === 'q6_k' && onCpu) bytes += held * features * Q6_K_ON_CPU;
    else bytes += format ? quantizedBytes(format, [held, features]) : held * features * perValue;
    if (!format) continue;
    counts.set(format, (counts.get(format) ?? 0) + values);
    const product = productOf(name);
    const workspace = productValues(kind, shape, dtype) * perValue;
    products.set(product, (products.get(product) ?? 0) + workspace);
  }
  const { sizes } = layerPlaces(specs);
  const whole = Math.min(slots, sizes.length);
  if (holders > 1 && counts.size === 0) {
    for (const elements of sizes) bytes -= perValue * (elements - partOf(elements, holders));
    bytes += whole * perValue * holders * partOf(Math.max(...sizes), holders);
  }
  return {
    holders,
    whole,
    bytes,
    quantized: [...counts].map(([format, values]) => `${parameterCount(values)} in ${format}`).join(', '),
    workspace: onCpu ? 0 : Math.max(0, ...products.values()),
  };
}

/** Values that a product holds in workspace at a time; an embedding has none, as only its rows are read. */
function productValues(kind: ModuleKind, [rows, features]: readonly number[], dtype: string): number {
  const heads = kind === 'head' || kind === 'tiedEmbedding';
  const most = kind === 'embedding' ? 0 : heads && dtype === 'bf16' ? HEAD_SPAN : Number.POSITIVE_INFINITY;
  return Math.min(rows!, most) * features!;
}

/** Tokens of the vocabulary that the head's products take at a time in bf16 (cuda/head/spans.cuh). */
const HEAD_SPAN = 8192;

/** Weights of one name are multiplied in one op: `linear_qkv`, `linear_swiglu`, `linear_experts`. */
const productOf = (name: string) =>
  /\.experts\./.test(name)
    ? name.replace(/\.experts\.\d+\./, '.experts.')
    : name.replace(/\.[qkv]_proj\./, '.qkv_proj.').replace(/\.(gate|up)_proj\./, '.gate_up_proj.');

/** The weights, where they are here; a plan needs no more than config.json. */
function stored(base: string) {
  return attempt(() => ending(openCheckpoint(baseDirectory(base))));
}
