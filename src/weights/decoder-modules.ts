/** The modules of a decoder model by their Hugging Face names, with the shapes of their weights. */
import type { DecoderConfig } from '../models/config.js';
import type { MatchOptions } from './checkpoint.js';

export type ModuleKind = 'embedding' | 'linear' | 'norm' | 'head';

/** What a module does in the model. */
export type ModuleRole =
  | 'embedding'
  | 'inputNorm'
  | 'query'
  | 'key'
  | 'value'
  | 'output'
  | 'queryNorm'
  | 'keyNorm'
  | 'postAttentionNorm'
  | 'gate'
  | 'up'
  | 'down'
  | 'finalNorm'
  | 'lmHead'
  | 'score';

export interface WeightSpec {
  /** Such as `model.layers.0.self_attn.q_proj.weight` */
  readonly name: string;
  /** A linear weight is [out, in], an embedding [vocabulary, hidden]. */
  readonly shape: readonly number[];
  readonly role: ModuleRole;
  readonly parameter: 'weight' | 'bias';
  /** Undefined outside the layers. */
  readonly layer: number | undefined;
}

export interface ModuleSpec {
  /** Such as `model.layers.0.self_attn.q_proj` */
  readonly name: string;
  readonly kind: ModuleKind;
  readonly role: ModuleRole;
  readonly layer: number | undefined;
  /** Empty for an `lm_head` that is tied to the embedding. */
  readonly weights: readonly WeightSpec[];
  /** Of the weight, also where it is tied: [out, in] of a linear module. */
  readonly shape: readonly number[];
}

/** Every module with weights, in the order of the forward. */
export function decoderModules(config: DecoderConfig): readonly ModuleSpec[] {
  const { hiddenSize, vocabSize, head } = config;
  const modules = [moduleSpec('model.embed_tokens', 'embedding', 'embedding', [vocabSize, hiddenSize])];
  for (let layer = 0; layer < config.numLayers; layer++) modules.push(...layerModules(config, layer));
  modules.push(moduleSpec('model.norm', 'norm', 'finalNorm', [hiddenSize]));
  if (head.kind === 'causal') {
    const lmHead = moduleSpec('lm_head', 'head', 'lmHead', [vocabSize, hiddenSize]);
    modules.push(config.tieWordEmbeddings ? { ...lmHead, weights: [] } : lmHead);
  } else {
    const bias = head.kind === 'token' && head.bias;
    modules.push(moduleSpec('score', 'head', 'score', [head.numLabels, hiddenSize], bias));
  }
  return modules;
}

/** Every weight that a checkpoint of the model holds. */
export function decoderWeights(config: DecoderConfig): readonly WeightSpec[] {
  return decoderModules(config).flatMap((module) => module.weights);
}

/** What else a checkpoint of the model may hold: rotary frequencies, as older files do, and the tied head again. */
export function decoderMatchOptions({ head, tieWordEmbeddings }: DecoderConfig): MatchOptions {
  const tied = head.kind === 'causal' && tieWordEmbeddings;
  return {
    ignore: (name) => /\.rotary_emb\.inv_freq$/.test(name),
    tied: tied ? { 'lm_head.weight': 'model.embed_tokens.weight' } : {},
  };
}

/** Number of parameters; tied weights count once. */
export function countParameters(config: DecoderConfig): number {
  return decoderWeights(config).reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
}

function layerModules(config: DecoderConfig, layer: number): ModuleSpec[] {
  const { hiddenSize, intermediateSize, headDim, qkvBias, outputBias, mlpBias } = config;
  const queries = config.numHeads * headDim;
  const keys = config.numKeyValueHeads * headDim;
  const prefix = `model.layers.${layer}`;
  const norm = (name: string, role: ModuleRole, size: number) =>
    moduleSpec(`${prefix}.${name}`, 'norm', role, [size], false, layer);
  const linear = (name: string, role: ModuleRole, shape: readonly [number, number], bias: boolean) =>
    moduleSpec(`${prefix}.${name}`, 'linear', role, shape, bias, layer);
  return [
    norm('input_layernorm', 'inputNorm', hiddenSize),
    linear('self_attn.q_proj', 'query', [queries, hiddenSize], qkvBias),
    linear('self_attn.k_proj', 'key', [keys, hiddenSize], qkvBias),
    linear('self_attn.v_proj', 'value', [keys, hiddenSize], qkvBias),
    linear('self_attn.o_proj', 'output', [hiddenSize, queries], outputBias),
    ...(config.qkNorm
      ? [norm('self_attn.q_norm', 'queryNorm', headDim), norm('self_attn.k_norm', 'keyNorm', headDim)]
      : []),
    norm('post_attention_layernorm', 'postAttentionNorm', hiddenSize),
    linear('mlp.gate_proj', 'gate', [intermediateSize, hiddenSize], mlpBias),
    linear('mlp.up_proj', 'up', [intermediateSize, hiddenSize], mlpBias),
    linear('mlp.down_proj', 'down', [hiddenSize, intermediateSize], mlpBias),
  ];
}

function moduleSpec(
  name: string,
  kind: ModuleKind,
  role: ModuleRole,
  shape: readonly number[],
  bias = false,
  layer?: number,
): ModuleSpec {
  const weight: WeightSpec = { name: `${name}.weight`, shape, role, parameter: 'weight', layer };
  const weights = bias
    ? [weight, { ...weight, name: `${name}.bias`, shape: shape.slice(0, 1), parameter: 'bias' as const }]
    : [weight];
  return { name, kind, role, layer, weights, shape };
}
