// The sections that methods share, and the type of a row of `src/methods/table.ts`.
import { isDeepStrictEqual } from 'node:util';
import type { z } from 'zod';
import type { CorrectionReading } from '../data/corrections/standing.js';
import type { HeldOutNeutral } from '../data/neutral.js';
import type { JsonObject } from '../weights/json.js';
import type { data, prompt } from './data.js';
import type { verdictEvaluation } from './eval-sections.js';
import type { lora, model } from './model.js';
import type { run } from './run.js';
import type { answerBatches, optimization } from './training.js';

export type ModelConfig = z.output<typeof model>;
export type LoraConfig = Exclude<z.output<typeof lora>, 'none'>;
export type DataConfig = z.output<typeof data>;
export type PromptConfig = z.output<typeof prompt>;
type RunSection = z.output<typeof run>;
export type VerdictEvaluationConfig = z.output<typeof verdictEvaluation>;

/** The keys that every training stage shares: schedule, batch, AdamW, evaluation and checkpoints. */
export type OptimizationConfig = z.output<z.ZodObject<ReturnType<typeof optimization>>>;

/** The keys that every stage with batches of answers shares. */
export type AnswerBatchConfig = z.output<z.ZodObject<ReturnType<typeof answerBatches>>>;

/** The sections of every configuration, whatever its method. */
export interface FrameConfig {
  readonly method: string;
  readonly model: ModelConfig;
  /** Absent if the method always trains every parameter. */
  readonly lora?: LoraConfig | 'none';
  readonly data: DataConfig;
  readonly prompt?: PromptConfig;
  readonly eval: { readonly max_samples: number | 'all' };
  readonly eval_verdicts?: VerdictEvaluationConfig;
  readonly eval_scores?: { readonly neutral: HeldOutNeutral };
  readonly run: RunSection;
}

/** A section with the batch size of a stage. */
export interface BatchSection {
  readonly micro_batch_tokens: number | 'auto';
  readonly tokens_per_step?: number;
}

/** The section of a training stage. */
export interface StageSection extends BatchSection {
  readonly eval_steps: number;
  readonly patience: number;
}

/** A violated rule between keys: the path to point at and the rest of the sentence. */
export interface Conflict {
  readonly path: readonly string[];
  readonly message: string;
}

/** The violation of a rule about the value at a dotted key. */
export const conflict = (key: string, message: string): Conflict => ({ path: key.split('.'), message });

/** The prompt of a run's problems, and the way in which its model corrects itself, if it does. */
export interface RunWords {
  /** The text around a problem, and whether it is asked in a chat; absent: the usual ones. */
  readonly template?: string | undefined;
  readonly chat?: boolean | undefined;
  readonly corrections?: CorrectionReading | undefined;
}

/**
 * Those of `keys` in a section that have another value than by default and no effect, as warnings.
 *
 * @param defaults the section as an empty one gives it
 * @param why what leaves them without effect
 */
export function* withoutEffect<Section extends object>(
  name: string,
  section: Section,
  {
    keys,
    defaults,
    why,
  }: { readonly keys: readonly (keyof Section & string)[]; readonly defaults: Section; readonly why: string },
): Generator<Conflict> {
  for (const key of keys)
    if (!isDeepStrictEqual(section[key], defaults[key]))
      yield conflict(`${name}.${key}`, `${name}.${key} has no effect: ${why}`);
}

/** The classifier of a base, if it has one: `token` or `sequence`, and its outputs. */
export interface BaseHead {
  readonly kind: string;
  readonly numLabels?: number;
  readonly labels?: readonly string[] | undefined;
}

/** The configuration of a method; `Input` is what a recipe may leave out. */
export interface MethodSchema<Config extends FrameConfig = FrameConfig, Input = unknown> {
  readonly schema: z.ZodType<Config, Input>;
  /** The sections of the stages that this configuration has, by the name of the stage. */
  sections(config: Config): Readonly<Record<string, StageSection>>;
  /** Dotted keys of the method's own sections that name files; they are made absolute, so that a run can be resumed elsewhere. */
  readonly paths?: readonly string[];
  /** Keys that name a model: a path, which is made absolute where it exists, a model of the package or a hub id. */
  readonly models?: readonly string[];
  /** Names of `method:` that mean this one with that value of a key: section and name of the key. */
  readonly algorithms?: { readonly key: readonly [string, string]; readonly names: readonly string[] };
  /** Absent: as the section `question` says, in the usual words where there is none. */
  words?(config: Config): RunWords;
  /** Set where its model may learn a class for neutral steps (`data.neutral: class`). */
  readonly neutralClass?: true;
  /**
   * Treatment of held-out neutral steps; with `score`, where their class counts as that instead of as configured.
   * Absent: as in `eval_verdicts.neutral`, or as trained.
   */
  heldOutNeutral?(config: Config, score?: HeldOutNeutral): HeldOutNeutral;
  /** Conflicts in the method's own sections. */
  conflicts(config: Config): Iterable<Conflict>;
  /** Why the method cannot train a base with this head, as a sentence that begins after the base's name; undefined: it can. */
  otherHead?(config: Config, head: BaseHead): string | undefined;
  /** Conflicts on keys that have a value but no effect, because of others; each is a warning. */
  unread?(config: Config): Iterable<Conflict>;
  /**
   * The settings by which the model in the folder `saved` of a run judges steps, for its card; absent or undefined: it
   * judges none. The keys are those of `src/scoring/settings.ts`.
   */
  judge?(config: Config, saved: string): JsonObject | undefined;
}

/** The methods by name, in the order in which messages and documentation list them. */
export type MethodSchemas<Config extends FrameConfig = FrameConfig> = Readonly<
  Record<string, MethodSchema<Config>>
>;
