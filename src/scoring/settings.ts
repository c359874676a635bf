/**
 * Settings by which a trained model judges steps. The method that trained it sets them, and the card with its weights
 * keeps them.
 */
import { join } from 'node:path';
import { z } from 'zod';
import { prompt } from '../config/data.js';
import { fixedThreshold } from '../config/eval-sections.js';
import type { DataConfig, ModelConfig, PromptConfig } from '../config/schema.js';
import { CARD, readCard } from '../models/card.js';
import type { ModelFiles } from '../models/saved.js';
import { WeightsError } from '../weights/error.js';
import type { JsonObject } from '../weights/json.js';
import { calibrationSettings } from './calibration/calibration.js';
import { GENERATIVE_LAYOUTS } from './generative/layouts.js';
import { PUBLISHED_LAYOUTS } from './published/layouts.js';

/** The layout without a request, which transformers reads as a classifier of tokens or sequences. */
export const LAYOUT = '{problem}\n{steps}\n';

/** Treatments of the class of neutral steps in a score. */
export const NEUTRAL_SCORES = ['positive', 'negative', 'drop'] as const;
export type NeutralScore = (typeof NEUTRAL_SCORES)[number];

/** Weights of each part of the log-odds that a step is right. */
export type LikelihoodWeights = {
  /** Calculations are computed, and no base is asked. Absent: it is. */
  readonly of?: 'calculations';
  readonly constant: number;
  /** Weight of the log-odds of the verdict words, cut off at ±8; 0: the likelihood alone. */
  readonly verdict: number;
  readonly least: number;
  readonly before: number;
  /**
   * Constant for a step that writes out no calculation, which is neither right nor wrong; absent where the base's
   * likelihood is used.
   */
  readonly unchecked?: number;
};
export const likelihoodWeights = z.strictObject({
  of: z.literal('calculations').exactOptional(),
  constant: z.number(),
  verdict: z.number(),
  least: z.number(),
  before: z.number(),
  unchecked: z.number().exactOptional(),
}) satisfies z.ZodType<LikelihoodWeights>;

/** How sure the judge is, and how sure it must be. */
const sureness = {
  /** Fitted to held-out steps by `eval calibrate`; `threshold` and `unsure` are then of the calibrated probability. */
  calibration: calibrationSettings.exactOptional(),
  /** A verdict that is less probable than this is none. */
  unsure: z.number().min(0.5).max(1).exactOptional(),
};

const common = {
  prompt,
  /** Max tokens of a sequence. */
  max_length: z.number().int().positive(),
  threshold: z.union([z.literal('greedy'), z.number().min(0).max(1)]),
  ...sureness,
  /** Sentences on the defects that its run found. */
  warnings: z.array(z.string()).exactOptional(),
};

const settings = z.discriminatedUnion('kind', [
  /** Verdict words of a language model. */
  z.strictObject({
    kind: z.literal('verdict'),
    ...common,
    /** Weights of the base's likelihood, where that judges too (`eval_verdicts.likelihood`). */
    likelihood: likelihoodWeights.exactOptional(),
    /** Reasons drawn for each verdict, where it writes them. Absent: the most likely one. */
    votes: z.number().int().min(1).max(1024).exactOptional(),
    /** A step of each form that it learned to judge, where they are few. */
    forms: z.array(z.string()).exactOptional(),
    /** The words of those steps, where they are few and the base reads them. */
    words: z.array(z.string()).exactOptional(),
    /** Pairs of neighbouring words in the problems that it learned from, where they are few: a word, then all that followed it. */
    word_pairs: z.array(z.string()).exactOptional(),
  }),
  /** `method: reward`. */
  z.strictObject({
    kind: z.literal('reward_model'),
    ...common,
    type: z.enum(['prm', 'orm', 'joint']),
    head: z.enum(['scalar', 'classes', 'verdict']),
    input: z.enum(['whole', 'prefixes']),
    /** Treatment of neutral steps, for a model with a class for them. */
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
    ...sureness,
    warnings: common.warnings,
  }),
  /** A published reward model of steps, which reads solutions in a layout of its own. */
  z.strictObject({
    kind: z.literal('published'),
    layout: z.enum(PUBLISHED_LAYOUTS),
    /** Text that ends every step, for the layout `trl`. Absent: a line break. */
    step_separator: z.string().min(1).exactOptional(),
    max_length: common.max_length,
    threshold: common.threshold,
    ...sureness,
  }),
  /** A language model that reasons about a solution in many lines and then says of each step whether it is right. */
  z
    .strictObject({
      kind: z.literal('generative'),
      layout: z.enum(GENERATIVE_LAYOUTS),
      /** For the layout `pattern`: the request, what the answer begins with, and how verdicts are read. */
      pattern: z
        .strictObject({
          request: z.string().includes('{problem}').includes('{steps}'),
          begin: z.string().exactOptional(),
          step: z
            .string()
            .regex(/^[\s\S]+\{step\}/, 'must have text before {step}')
            .exactOptional(),
          verdict: z.string().regex(/^[\s\S]+\{verdict\}/, 'must have text before {verdict}'),
          words: z.tuple([z.string().min(1), z.string().min(1)]),
        })
        .exactOptional(),
      votes: z.number().int().min(1).max(1024),
      temperature: z.number().positive(),
      top_p: z.number().gt(0).max(1),
      max_new_tokens: z.number().int().positive(),
      max_length: common.max_length,
      threshold: common.threshold,
      ...sureness,
      warnings: common.warnings,
    })
    .refine(({ layout, pattern }) => (layout === 'pattern') === (pattern !== undefined), {
      path: ['pattern'],
      message: 'must be there for the layout pattern, and for it alone',
    }),
  /** A classifier of sequences, as transformers saves it: one score, or two classes, for a whole solution. */
  z.strictObject({
    kind: z.literal('classifier'),
    /** The text of a solution. Absent: the chat template, or without one the solution on a new line. */
    template: z.string().includes('{problem}').includes('{solution}').exactOptional(),
    /** Whether the end-of-text token follows it. Absent: it does not. */
    add_eos_token: z.boolean().exactOptional(),
    max_length: common.max_length,
    threshold: common.threshold,
    ...sureness,
  }),
]);

export type JudgeSettings = z.output<typeof settings>;
export type SettingsOf<Kind extends JudgeSettings['kind']> = Extract<JudgeSettings, { readonly kind: Kind }>;

/** Settings of a model that answers with verdict words. */
export function verdictSettings({
  prompt,
  data,
  eval_verdicts: { threshold },
}: {
  readonly prompt: PromptConfig;
  readonly data: DataConfig;
  readonly eval_verdicts: { readonly threshold: Parameters<typeof fixedThreshold>[0] };
}): SettingsOf<'verdict'> {
  return { kind: 'verdict', prompt, max_length: data.max_length, threshold: fixedThreshold(threshold) };
}

/** Settings of an implicit reward model. A log-ratio of 0 is a probability of one half: the greedy threshold. */
export function implicitSettings(
  { model: { base, adapter }, data }: { readonly model: ModelConfig; readonly data: DataConfig },
  how: Pick<SettingsOf<'implicit_prm'>, 'template' | 'beta'>,
): SettingsOf<'implicit_prm'> {
  return {
    kind: 'implicit_prm',
    ...how,
    reference: {
      ...(typeof base === 'string' ? { model: base } : {}),
      ...(adapter === undefined ? {} : { adapter }),
    },
    max_length: data.max_length,
    threshold: 'greedy',
  };
}

/** The settings in the card of an adapter, or of the weights of a whole model; undefined where there is none. */
export function settingsOfFiles({ model, adapter }: ModelFiles): JudgeSettings | undefined {
  const directory = adapter ?? model;
  const judge = readCard(directory)?.judge;
  const found = judge && parseJudgeSettings(judge, directory);
  // A model into which the adapter was merged has no base to ask.
  if (found?.kind === 'verdict' && adapter === undefined) delete found.likelihood;
  return found;
}

/** @throws WeightsError naming the key */
function parseJudgeSettings(value: JsonObject, directory: string): JudgeSettings {
  const parsed = settings.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const key = ['judge', ...(issue?.path ?? [])].join('.');
  throw new WeightsError(`${join(directory, CARD)}: ${key}: ${issue?.message ?? 'is not as a run wrote it'}`);
}
