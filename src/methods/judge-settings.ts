/** How a trained model judges steps: read off the configuration of its run, kept beside its weights. */
import { join } from 'node:path';
import { z } from 'zod';
import { prompt } from '../config/data.js';
import { likelihoodWeights } from '../eval/likelihood.js';
import { CARD, readCard } from '../models/card.js';
import type { ModelFiles } from '../models/saved.js';
import { WeightsError } from '../weights/error.js';
import type { JsonObject } from '../weights/json.js';
import { NEUTRAL_SCORES, rewardPrompt } from './reward/config.js';
import type { RunConfig } from './table.js';

const common = {
  prompt,
  /** Most tokens of a sequence. */
  max_length: z.number().int().positive(),
  threshold: z.union([z.literal('greedy'), z.number().min(0).max(1)]),
};

const settings = z.discriminatedUnion('kind', [
  /** Verdict words of a language model. */
  z.strictObject({
    kind: z.literal('verdict'),
    ...common,
    /** Of how likely the base finds the steps, where that judges too (`eval.likelihood`). */
    likelihood: likelihoodWeights.exactOptional(),
    /** A step of each form that it learned to judge, where they are few. */
    forms: z.array(z.string()).exactOptional(),
  }),
  /** `method: reward`. */
  z.strictObject({
    kind: z.literal('reward_model'),
    ...common,
    type: z.enum(['prm', 'orm', 'joint']),
    head: z.enum(['scalar', 'classes', 'verdict']),
    input: z.enum(['whole', 'prefixes']),
    /** Of a model with a class for neutral steps. */
    neutral_score: z.enum(NEUTRAL_SCORES).exactOptional(),
  }),
  /** The reward network of `method: stepamc`. */
  z.strictObject({ kind: z.literal('reward_network'), ...common, pair_mode: z.enum(['label', 'step']) }),
  /** `method: implicit_prm`: log-ratios to its reference. */
  z.strictObject({
    kind: z.literal('implicit_prm'),
    /** Text around a problem. */
    template: z.string(),
    beta: z.number().positive(),
    /** The base, absent where it had random weights; and the adapter on it that training began with. */
    reference: z.strictObject({ model: z.string().exactOptional(), adapter: z.string().exactOptional() }),
    max_length: common.max_length,
    threshold: common.threshold,
  }),
]);

export type JudgeSettings = z.output<typeof settings>;
export type ImplicitSettings = Extract<JudgeSettings, { readonly kind: 'implicit_prm' }>;

/** Those of the run's model; undefined where it judges no steps. */
export function judgeSettings(config: RunConfig): JudgeSettings | undefined {
  if (config.method === 'implicit_prm') {
    const { model, data, question, implicit_prm } = config;
    return implicitJudge({ model, data, template: question.template, beta: implicit_prm.beta });
  }
  if (!('prompt' in config)) return undefined;
  const { threshold } = config.eval;
  const common = { prompt: config.prompt, max_length: config.data.max_length, threshold };
  if (config.method !== 'reward') return { kind: 'verdict', ...common };
  const { type, head, input, neutral_score } = config.reward;
  const neutral = config.data.neutral === 'class' ? { neutral_score } : {};
  return { kind: 'reward_model', ...common, prompt: rewardPrompt(config), type, head, input, ...neutral };
}

/** A log-ratio of 0 is a probability of one half: the greedy threshold. */
function implicitJudge({
  model,
  data,
  ...settings
}: Pick<RunConfig, 'model' | 'data'> & Pick<ImplicitSettings, 'template' | 'beta'>): ImplicitSettings {
  const { base, adapter } = model;
  return {
    kind: 'implicit_prm',
    ...settings,
    reference: {
      ...(typeof base === 'string' ? { model: base } : {}),
      ...(adapter === undefined ? {} : { adapter }),
    },
    max_length: data.max_length,
    threshold: 'greedy',
  };
}

/** The same as the run's adapter is kept, with what its final evaluation has fitted. */
export function settingsOfRun(config: RunConfig, run: string): JudgeSettings | undefined {
  const settings = judgeSettings(config);
  const directory = join(run, 'adapter');
  const judge = settings?.kind === 'verdict' ? readCard(directory)?.judge : undefined;
  const kept = judge && parseJudgeSettings(judge, directory);
  if (settings?.kind !== 'verdict' || kept?.kind !== 'verdict') return settings;
  const { likelihood, forms } = kept;
  return { ...settings, ...(likelihood ? { likelihood } : {}), ...(forms ? { forms } : {}) };
}

/** Those of the implicit reward model in `implicit/` that a run of `method: ppo` trained beside its policy. */
export function onlineImplicitSettings(config: RunConfig): JudgeSettings | undefined {
  if (config.method !== 'ppo') return undefined;
  const { model, data, rollout, reward } = config;
  return implicitJudge({ model, data, template: rollout.template, beta: reward.implicit.beta });
}

/** Those of the reward network in `reward/`; undefined for a method without one. */
export function networkSettings(config: RunConfig): JudgeSettings | undefined {
  if (!('frn' in config)) return undefined;
  const { pair_mode } = config.frn;
  const common = { prompt: config.prompt, max_length: config.data.max_length };
  return { kind: 'reward_network', ...common, threshold: 0.5, pair_mode };
}

/** Those of the card beside an adapter, or beside the weights of a whole model; undefined where there is none. */
export function settingsOfFiles({ model, adapter }: ModelFiles): JudgeSettings | undefined {
  const directory = adapter ?? model;
  const judge = readCard(directory)?.judge;
  const settings = judge && parseJudgeSettings(judge, directory);
  // A model into which the adapter was merged has no base to ask.
  if (settings?.kind === 'verdict' && adapter === undefined) delete settings.likelihood;
  return settings;
}

/** @throws WeightsError naming the key */
export function parseJudgeSettings(value: JsonObject, directory: string): JudgeSettings {
  const parsed = settings.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const key = ['judge', ...(issue?.path ?? [])].join('.');
  throw new WeightsError(`${join(directory, CARD)}: ${key}: ${issue?.message ?? 'is not as a run wrote it'}`);
}
