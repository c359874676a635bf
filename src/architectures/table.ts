/** The table of architectures. A new one is a file of this folder and a row here. */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { relu } from '../ops/mlp.js';
import type { MatchOptions } from '../weights/checkpoint.js';
import { show, WeightsError } from '../weights/error.js';
import { Fields } from '../weights/fields.js';
import { isJsonObject, type JsonObject, readJsonObject } from '../weights/json.js';
import { headWeight, type ModuleSpec, type WeightSpec } from '../weights/modules.js';
import type { Architecture, Classifier, InitConflict, NewModel } from './architecture.js';
import type { ModelConfig } from './config.js';
import { debertaV2 } from './deberta.js';
import { gemma } from './gemma.js';
import { publishedHead } from './heads.js';
import { llama } from './llama.js';
import { opt } from './opt.js';
import { qwen35, qwen35Moe } from './qwen3_5.js';

export const ARCHITECTURES = [
  llama,
  gemma,
  qwen35,
  qwen35Moe,
  opt,
  debertaV2,
] satisfies readonly Architecture[];

const rows: ReadonlyMap<string, Architecture> = new Map(
  ARCHITECTURES.flatMap((row) => row.modelTypes.map((modelType) => [modelType, row])),
);

/**
 * Missing features of models that users ask for, by the beginning of their `model_type`; docs/reference/models.md says
 * more.
 */
const ABSENT: Readonly<Record<string, string>> = {
  gemma2:
    'Gemma 2 caps the scores of attention and the logits by tanh, which no kernel here does; take a Gemma 3',
  gemma4:
    'Gemma 4 gives each layer an embedding of its own and shares keys among layers, which no layer here does; take a Gemma 3',
  gpt_oss:
    'gpt-oss has sinks in its attention, clamped experts with biases and weights in MXFP4, which are not implemented; take a Qwen3',
  qwen3_next:
    'Qwen3-Next joins what goes into its delta rule in two modules, which is not implemented; take a Qwen3.5',
};

/** The row of a model that was read. */
export function architectureOf({ modelType }: Pick<ModelConfig, 'modelType'>): Architecture {
  return rows.get(modelType) as Architecture;
}

/** Whether tokens see those after them; each prefix is then a sequence of its own. */
export function isBidirectional(config: Pick<ModelConfig, 'modelType'>): boolean {
  return architectureOf(config).bidirectional ?? false;
}

/** The end of the model's classes for sequences and tokens; without `head`, of those that transformers has. */
export function classifierOf({
  modelType,
  head,
}: Pick<ModelConfig, 'modelType'> & Partial<Pick<ModelConfig, 'head'>>): Classifier {
  const { module, hidden } = (head && publishedHead(head)) ?? {};
  if (module !== undefined)
    return { module, reads: 'last', ...(hidden ? { pool: (x, project) => relu(project(x, hidden)) } : {}) };
  return architectureOf({ modelType }).classifier ?? { module: 'score', reads: 'last' };
}

/**
 * Reads `config.json` of a model directory.
 *
 * @throws WeightsError naming file and key
 */
export function readModelConfig(directory: string): ModelConfig {
  const path = join(directory, 'config.json');
  const config = parseModelConfig(readJsonObject(path), path);
  return { ...config, eosTokenIds: endOfTextTokens(directory, config) };
}

/**
 * The end-of-text tokens of a model, from config.json and generation_config.json; chat models often have more of them in the latter.
 *
 * @throws WeightsError for an invalid generation_config.json
 */
function endOfTextTokens(
  directory: string,
  { eosTokenIds }: Pick<ModelConfig, 'eosTokenIds'>,
): readonly number[] {
  const path = join(directory, 'generation_config.json');
  if (!existsSync(path)) return eosTokenIds;
  const more = new Fields(readJsonObject(path), path).integers('eos_token_id') ?? [];
  return [...new Set([...eosTokenIds, ...more])];
}

/** @param where the file, for errors */
export function parseModelConfig(json: JsonObject, where: string): ModelConfig {
  const { model_type: modelType } = json;
  const row = typeof modelType === 'string' ? rows.get(modelType) : undefined;
  if (row) return row.parse(new Fields(json, where), modelType as string);
  const [, lacking = 'other models are not supported'] =
    Object.entries(ABSENT).find(([type]) => String(modelType).startsWith(type)) ?? [];
  throw new WeightsError(
    `${where}: model_type: expected one of ${[...rows.keys()].join(', ')}, found ${show(modelType ?? 'nothing')}; ${lacking}`,
  );
}

/** Contradictions in the shape of a new model. */
export function newModelConflicts(init: NewModel): readonly InitConflict[] {
  return rows.get(init.model_type)?.initConflicts(init) ?? [];
}

/** The configuration of a new model from a recipe's `model.base.init`. */
export function newModelConfig(
  init: NewModel,
  { vocabSize, eosId }: { readonly vocabSize: number; readonly eosId?: number | undefined },
): ModelConfig {
  const given = Object.entries(init).filter(([, value]) => value !== undefined);
  const json = { ...Object.fromEntries(given), ...rows.get(init.model_type)?.initDefaults?.(init) };
  const ids = { vocab_size: vocabSize, eos_token_id: eosId ?? null };
  return parseModelConfig({ ...json, ...ids } as JsonObject, 'model.base.init');
}

/**
 * The configuration as a `config.json` that transformers 4 and 5 read alike. Keys of the source that do not concern the maths are
 * kept.
 */
export function modelConfigJson(config: ModelConfig): JsonObject {
  return sortKeys(architectureOf(config).json(config));
}

/** Every module with weights, in the order of the forward. */
export function modelModules(config: ModelConfig): readonly ModuleSpec[] {
  return architectureOf(config).modules(config);
}

/** Every weight that a checkpoint of the model holds. */
export function modelWeights(config: ModelConfig): readonly WeightSpec[] {
  return modelModules(config).flatMap(({ weights }) => weights);
}

/** Further weights that a checkpoint may contain: those that can be computed, as in older files, and a copy of the tied head. */
export function matchOptions(config: ModelConfig): MatchOptions {
  const { computed } = architectureOf(config);
  const modules = modelModules(config);
  const tiedHead = modules.find(({ kind, weights }) => kind === 'head' && weights.length === 0);
  return {
    // The files of published reward models carry the language-model head that they were made from.
    ignore: (name) =>
      (computed?.test(name) ?? false) ||
      (publishedHead(config.head) !== undefined && name === 'lm_head.weight'),
    tied: tiedHead ? { [`${tiedHead.name}.weight`]: headWeight(modules) as string } : {},
  };
}

/** Number of parameters; tied weights count once. */
export function countParameters(config: ModelConfig): number {
  return modelWeights(config).reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
}

/** Keys in order at every level, as transformers writes them. */
function sortKeys(object: JsonObject): JsonObject {
  return Object.fromEntries(
    Object.keys(object)
      .sort()
      .map((key) => {
        const value = object[key]!;
        return [key, isJsonObject(value) ? sortKeys(value) : value];
      }),
  );
}
