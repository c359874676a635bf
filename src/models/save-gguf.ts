/** Writes a model directory as one GGUF file, for llama.cpp and programs built on it. */

import type { ExpertsConfig } from '../architectures/experts.js';
import type { GemmaConfig } from '../architectures/gemma.js';
import { scalingAsGguf } from '../architectures/gguf-rope.js';
import type { LlamaConfig } from '../architectures/llama-config.js';
import type { Qwen35Config } from '../architectures/qwen3_5-config.js';
import { modelConfigJson, modelWeights, readModelConfig } from '../architectures/table.js';
import { exp } from '../native/elementary.js';
import { ending } from '../native/ending.js';
import { StepTrainError } from '../native/errors.js';
import { ggufTokens } from '../tokenizer/gguf-tokens.js';
import { loadTokenizer } from '../tokenizer/load.js';
import { replyEnd } from '../tokenizer/reply-end.js';
import { readTokenizerFiles } from '../tokenizer/tokenizer-files.js';
import { readStoredF32 } from '../weights/checkpoint.js';
import { finiteFromF32, fromF32, toF32 } from '../weights/convert.js';
import { type FloatDtype, isFloatDtype } from '../weights/dtype.js';
import { reordered, storedForm } from '../weights/gguf/form.js';
import { ggufName } from '../weights/gguf/names.js';
import { type QuantizedName, quantize } from '../weights/gguf/quantize.js';
import { type Typed, writeGguf } from '../weights/gguf/writer.js';
import { ofExperts } from '../weights/modules.js';
import { openDecoderWeights } from './load.js';

export type GgufType = FloatDtype | QuantizedName;

/** `general.architecture` by `model_type`. */
const ARCHITECTURES: Readonly<Record<string, string>> = {
  llama: 'llama',
  mistral: 'llama',
  qwen2: 'qwen2',
  qwen3: 'qwen3',
  qwen3_moe: 'qwen3moe',
  gemma3_text: 'gemma3',
  qwen3_5_text: 'qwen35',
  qwen3_5_moe_text: 'qwen35moe',
};

/** llama.cpp's numbers of what most of a file's tensors are. */
const FILE_TYPES: Readonly<Record<GgufType, number>> = { F32: 0, F16: 1, Q4_0: 2, Q8_0: 7, BF16: 32 };

/**
 * Writes the weights as `type`, norms and biases in f32, and in Q4_0 the embedding as Q8_0, with the tokenizer and its chat template.
 *
 * @throws StepTrainError for an architecture, head or tokenizer that GGUF files do not have, and for weights that are no finite
 *   numbers; FileError for a failed write
 */
export async function saveGguf(directory: string, path: string, type: GgufType): Promise<void> {
  const { config, architecture, shape: shapeKeys, divisors, tokens } = await ggufKeys(directory);
  using weights = ending(openDecoderWeights(directory, config));
  const specs = modelWeights(config);
  const experts = ofExperts(specs);
  const tensors = specs.flatMap(({ name, shape, kind, expert }) => {
    if (expert && expert.index > 0) return [];
    const stored = ggufName(architecture, expert ? `${expert.of}.weight` : name) as string;
    const form = storedForm(architecture, stored, config);
    const extents = form.squeezed === undefined ? shape : shape.toSpliced(form.squeezed, 1);
    const inFull = extents.length === 1 || kind === 'router' || kind === 'convolution';
    const kept = inFull ? 'F32' : type === 'Q4_0' && /token_embd|^output/.test(stored) ? 'Q8_0' : type;
    const bytesOf = (weight: string) => {
      const { offset, isDecay, order } = form;
      const read = readStoredF32(weights, weight);
      const values = isDecay
        ? read.map((value) => -exp(value))
        : offset === 0
          ? read
          : read.map((value) => value + offset);
      const placed = order ? toF32(reordered(fromF32(values, 'F32'), shape, order, 'file'), 'F32') : values;
      const bytes = finiteFromF32(placed, isFloatDtype(kept) ? kept : 'F32', {
        name: weight,
        width: shape.at(-1) ?? 1,
      });
      return isFloatDtype(kept) ? bytes : quantize(placed, kept, `weight '${weight}'`);
    };
    const names = expert ? experts.get(expert.of)?.map((each) => each.name) : undefined;
    return {
      name: stored,
      type: kept,
      shape: names ? [names.length, ...shape] : extents,
      data: () => (names ? Buffer.concat(names.map(bytesOf)) : bytesOf(name)),
    };
  });
  if (divisors) {
    const data = () => fromF32(Float32Array.from(divisors), 'F32');
    tensors.push({ name: 'rope_freqs.weight', type: 'F32', shape: [divisors.length], data });
  }
  const metadata = new Map<string, Typed>([
    ['general.architecture', { text: architecture }],
    ['general.type', { text: 'model' }],
    ['general.file_type', { u32: FILE_TYPES[type] }],
    ['general.quantization_version', { u32: 2 }],
    ...shapeKeys,
    ...tokens,
  ]);
  await writeGguf(path, metadata, tensors);
}

/**
 * Metadata of the file on the model's shape and tokenizer; also checks that such a model can be written.
 *
 * @throws StepTrainError as {@link saveGguf}
 */
export async function ggufKeys(directory: string) {
  const config = readModelConfig(directory) as Written;
  const { modelType, head } = config;
  const architecture = ARCHITECTURES[modelType];
  if (architecture === undefined || head.kind !== 'causal')
    throw unsupported(
      `${directory} is ${head.kind === 'causal' ? '' : 'a classifier '}of type ${modelType}; GGUF files are written of ${Object.keys(ARCHITECTURES).join(', ')} that write text`,
    );
  if ('delta' in config) refuseDelta(directory, config);
  const windows = 'delta' in config ? [] : config.slidingWindow;
  const windowed = windows.map((window) => window !== undefined);
  if (modelType === 'gemma3_text' && windowed.some((is, layer) => is !== ((layer + 1) % 6 !== 0)))
    throw unsupported(
      `${directory} has windows in other layers than five of six, which llama.cpp takes for granted`,
    );
  if (modelType !== 'gemma3_text' && windowed.includes(true))
    throw unsupported(`${directory} attends within windows, which is not written as GGUF`);
  const experts = 'experts' in config ? config.experts : undefined;
  if (experts && (!experts.normalise || experts.sparse.includes(false)))
    throw unsupported(
      `${directory} has ${experts.normalise ? 'layers without experts' : 'norm_topk_prob: false'}, which llama.cpp does not know of this architecture`,
    );
  if ('bias' in config ? config.bias : config.outputBias && architecture !== 'llama')
    throw unsupported(
      `${directory} has attention_bias: true, whose biases of o_proj llama.cpp does not read of this architecture`,
    );
  const { keys, divisors } = scalingAsGguf(config.rope);
  const shape = shapeOf(config, architecture, keys);
  const tokens = ggufTokens(await readTokenizerFiles(directory), config.vocabSize);
  const tokenizer = await loadTokenizer(directory);
  const { id } = replyEnd(tokenizer);
  if (id !== undefined && id !== tokenizer.eosId) tokens.set('tokenizer.ggml.eot_token_id', { u32: id });
  return { config, architecture, shape, divisors, tokens };
}

type Written = LlamaConfig | GemmaConfig | Qwen35Config;

/** Interval between the layers of Qwen3.5 that attend; llama.cpp assumes it. */
const intervalOf = ({ layers }: Qwen35Config) => layers.indexOf('full') + 1;

/** @throws StepTrainError for what llama.cpp has no key for */
function refuseDelta(directory: string, config: Qwen35Config): void {
  const { keySize, valueSize } = config.delta;
  if (keySize !== valueSize)
    throw unsupported(
      `${directory} has linear_key_head_dim ${keySize} and linear_value_head_dim ${valueSize}; llama.cpp has one key for both, so only equal ones are written as GGUF`,
    );
  const interval = intervalOf(config);
  if (
    interval === 0 ||
    config.layers.some((kind, layer) => (kind === 'full') !== ((layer + 1) % interval === 0))
  )
    throw unsupported(
      `${directory} has layer_types in which full_attention is not each so many layers, which GGUF's full_attention_interval cannot say`,
    );
}

/** Keys of Qwen3.5. Sections divide the rotated pairs among the three directions of an image; text has one position in all. */
function deltaKeys(config: Qwen35Config): [string, Typed][] {
  const { keyHeads, heads, keySize, valueSize, taps } = config.delta;
  const pairs = config.rope.headDim / 2;
  const sections = [Math.ceil(pairs / 3), Math.ceil((pairs - 1) / 3), Math.floor(pairs / 3), 0];
  return [
    ['rope.dimension_sections', { i32s: sections }],
    ['full_attention_interval', { u32: intervalOf(config) }],
    ['ssm.conv_kernel', { u32: taps }],
    ['ssm.state_size', { u32: keySize }],
    ['ssm.group_count', { u32: keyHeads }],
    ['ssm.time_step_rank', { u32: heads }],
    ['ssm.inner_size', { u32: heads * valueSize }],
  ];
}

function expertKeys({ count, perToken, intermediateSize, sharedSize }: ExpertsConfig): [string, Typed][] {
  return [
    ['expert_count', { u32: count }],
    ['expert_used_count', { u32: perToken }],
    ['expert_feed_forward_length', { u32: intermediateSize }],
    ...(sharedSize === undefined
      ? []
      : ([['expert_shared_feed_forward_length', { u32: sharedSize }]] satisfies [string, Typed][])),
  ];
}

function shapeOf(
  config: Written,
  architecture: string,
  scaling: readonly [string, Typed][],
): [string, Typed][] {
  const original = modelConfigJson(config).max_position_embeddings as number;
  const keys: [string, Typed][] = [
    ['block_count', { u32: config.numLayers }],
    ['context_length', { u32: original }],
    ['embedding_length', { u32: config.hiddenSize }],
    ['attention.head_count', { u32: config.numHeads }],
    ['attention.head_count_kv', { u32: config.numKeyValueHeads }],
    ['attention.key_length', { u32: config.headDim }],
    ['attention.value_length', { u32: config.headDim }],
    ['attention.layer_norm_rms_epsilon', { f32: config.rmsNormEps }],
    ['rope.dimension_count', { u32: config.rope.headDim }],
    ['rope.freq_base', { f32: config.rope.theta }],
    ['vocab_size', { u32: config.vocabSize }],
  ];
  if (config.modelType === 'gemma3_text')
    keys.push(
      ['attention.sliding_window', { u32: config.slidingWindow[0] as number }],
      ['rope.freq_base_swa', { f32: config.localRope.theta }],
    );
  // llama.cpp asks for the width of an MLP even where no layer has one, but not of Qwen3.5 with experts.
  if (config.modelType !== 'qwen3_5_moe_text')
    keys.push(['feed_forward_length', { u32: config.intermediateSize }]);
  if ('delta' in config) keys.push(...deltaKeys(config));
  if ('experts' in config && config.experts) keys.push(...expertKeys(config.experts));
  keys.push(...scaling);
  return keys.map(([key, value]) => [`${architecture}.${key}`, value]);
}

const unsupported = (message: string) => new StepTrainError('E_UNSUPPORTED', message);
