/**
 * Chooses the frozen weights that stay in 4 or 8 bits. Products read their codes, so no f32 copy is kept; see
 * `ops/gemm.ts`.
 */
import type { CheckpointReader } from '../weights/checkpoint.js';
import { WeightsError } from '../weights/error.js';
import { type ModuleKind, ofExperts, type WeightSpec } from '../weights/modules.js';
import { featuresMultiple, type MadeFormat, type QuantizedFormat } from '../weights/quantized/format.js';

/**
 * `keep`: as they are stored, where products read that; `nf4`, `int8`: made of those that are stored in more bits; `nf4_head`, `int8_head`:
 * with int8 of the embedding and the head; `none`: in the dtype of the model.
 */
export const QUANTIZE = ['keep', 'nf4', 'int8', 'nf4_head', 'int8_head', 'none'] as const;
export type Quantize = (typeof QUANTIZE)[number];

export const isQuantize = (name: string): name is Quantize => QUANTIZE.some((each) => each === name);

/** Formats of linear weights, and of embedding and head. NF4 is QLoRA's, with quantised scales. */
const MADE: Readonly<Partial<Record<Quantize, { readonly linear: MadeFormat; readonly head?: MadeFormat }>>> =
  {
    nf4: { linear: 'nf4_double' },
    int8: { linear: 'int8' },
    nf4_head: { linear: 'nf4_double', head: 'int8' },
    int8_head: { linear: 'int8', head: 'int8' },
  };

/** Origin of a linear weight's format: the file, or a conversion. */
export type ChosenFormat = { readonly stored: QuantizedFormat } | { readonly made: MadeFormat };

/** Modules that `nf4` and `int8` leave alone, as bitsandbytes does. */
const HEADS: ReadonlySet<ModuleKind> = new Set(['embedding', 'tiedEmbedding', 'head']);

/**
 * Formats of the weights of a checkpoint that stay in few bits: linear ones, and the embedding and head where they are
 * stored so or where `quantize` asks for it. Norms and biases never do.
 *
 * @throws WeightsError for a weight that cannot be made into the format
 */
export function chosenFormats(
  specs: readonly WeightSpec[],
  reader: Pick<CheckpointReader, 'format'>,
  quantize: Quantize,
): Map<string, ChosenFormat> {
  const formats = new Map<string, ChosenFormat>();
  for (const spec of specs) {
    if (quantize === 'none' || spec.shape.length !== 2) continue;
    const isHead = HEADS.has(spec.kind);
    if (spec.kind !== 'linear' && !isHead) continue;
    const made = MADE[quantize]?.[isHead ? 'head' : 'linear'];
    if (quantize !== 'keep' && made === undefined) continue;
    const stored = reader.format?.(spec.name);
    if (quantize === 'keep' && stored === undefined) continue;
    const format = formatOf(spec, stored, quantize, made);
    if (format) formats.set(spec.name, format);
  }
  // The experts of a projection are one product.
  for (const experts of ofExperts(specs).values()) {
    if (new Set(experts.map(({ name }) => formatName(formats.get(name)))).size === 1) continue;
    for (const spec of experts) {
      const format = formatOf(spec, undefined, quantize, MADE[quantize]?.linear);
      if (format) formats.set(spec.name, format);
      else formats.delete(spec.name);
    }
  }
  return formats;
}

const formatName = (format: ChosenFormat | undefined) =>
  format && ('stored' in format ? format.stored : format.made);

function formatOf(
  { name, shape }: WeightSpec,
  stored: QuantizedFormat | undefined,
  quantize: Quantize,
  made: MadeFormat | undefined,
): ChosenFormat | undefined {
  const features = shape[1] as number;
  const isMade = stored === made || (stored === 'nf4' && made === 'nf4_double');
  if (stored !== undefined && (made === undefined || isMade))
    return features % featuresMultiple(stored) === 0 ? { stored } : undefined;
  if (made === undefined) return undefined;
  const multiple = featuresMultiple(made);
  if (features % multiple === 0) return { made };
  throw new WeightsError(
    `weight '${name}': model.quantize ${quantize} takes features in blocks of ${multiple}, and it has ${features}; ` +
      'set model.quantize: none, or int8 where they are a multiple of 4',
  );
}

/** "quantised weights: 210 kept in q4_1, 1 kept in q8_0; products dequantise them". */
export function quantizedSummary(formats: ReadonlyMap<string, ChosenFormat>): string {
  const counts = new Map<string, number>();
  for (const format of formats.values()) {
    const what = 'stored' in format ? `kept in ${format.stored}` : `made ${format.made}`;
    counts.set(what, (counts.get(what) ?? 0) + 1);
  }
  return `quantised weights: ${[...counts].map(([what, count]) => `${count} ${what}`).join(', ')}; products dequantise them`;
}
