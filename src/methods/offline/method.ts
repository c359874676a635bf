/**
 * A method that learns from answers: once, from those of the data, or in rounds, from its model's own. Its section, its kind of data
 * and its objective are its own; the stages are those of `run.ts`.
 */
import { z } from 'zod';
import { data } from '../../config/data.js';
import { evaluation } from '../../config/eval-sections.js';
import { section } from '../../config/fields.js';
import { lora, model } from '../../config/model.js';
import { question } from '../../config/question.js';
import { run } from '../../config/run.js';
import { type Conflict, conflict } from '../../config/schema.js';
import { answerBatches } from '../../config/training.js';
import { wholeSolutions } from '../../config/whole-solutions.js';
import type { Dataset } from '../../data/dataset.js';
import type { OfflineItem } from '../../scoring/implicit/items.js';
import type { Method } from '../../train/method.js';
import type { Trainee } from '../../train/roles/trainee.js';
import type { ItemKind } from './answers/kinds.js';
import type { OfflineObjective } from './answers/objective.js';
import { type RoundSettings, type RoundsConfig, roundConflicts, unreadRoundKeys } from './rounds/config.js';
import type { AnswerData, OfflineLearning } from './rounds/run.js';
import { judge, roundKeys, sampling, solvingEvaluation } from './rounds/sections.js';

/** The sections of every offline method, in addition to its own. */
const frame = {
  model,
  lora,
  data,
  question,
  sampling,
  judge,
  run,
  eval: evaluation,
  eval_solving: solvingEvaluation,
};

/** The section of a method, as its objective sees it: its own keys, and those of rounds and batches. */
type Settings<Keys extends z.ZodRawShape> = RoundSettings & z.output<z.ZodObject<Keys>>;

export interface OfflineMethodOptions<Name extends string, Keys extends z.ZodRawShape> {
  /** The method, its section and its stage. */
  readonly name: Name;
  /** Description in a line without its full stop. */
  readonly about: string;
  readonly defaults: {
    readonly learning_rate: number;
    readonly batch_size: number;
    readonly iterations?: number;
  };
  /** Keys of its section other than those of rounds and batches. */
  readonly keys: Keys;
  readonly kind: ItemKind | ((settings: Settings<Keys>) => ItemKind);
  /** Makes the objective, which may count items of `train` before it begins. */
  readonly objective: (settings: Settings<Keys>, train: Dataset<OfflineItem>) => OfflineObjective;
  /** Whether its batches need answers to several problems, for a reference point. */
  readonly comparesProblems?: (settings: Settings<Keys>) => boolean;
  /** Warnings about keys of its section that others leave without effect. */
  readonly unread?: (settings: Settings<Keys>) => Iterable<Conflict>;
  /** Why its model's own samples are nothing to learn from. */
  readonly withoutRounds?: string;
}

export function offlineMethod<const Name extends string, Keys extends z.ZodRawShape>(
  options: OfflineMethodOptions<Name, Keys>,
) {
  const { name, about, keys, kind, objective, comparesProblems, unread, withoutRounds } = options;
  const { iterations = 0, ...defaults } = options.defaults;
  const keysOf = section({
    ...roundKeys(iterations),
    ...answerBatches({ micro_batch_tokens: 4096, warmup_ratio: 0.1, ...defaults }),
    ...keys,
  }).describe(`${about} (\`method: ${name}\`).`);
  const schema = z.strictObject({
    method: z.literal(name).describe('The training method.'),
    ...frame,
    [name]: keysOf,
  }) as unknown as z.ZodObject<
    typeof frame & { readonly method: z.ZodLiteral<Name> } & { readonly [N in Name]: typeof keysOf },
    z.core.$strict
  >;
  type Config = z.output<typeof schema>;
  const settingsOf = (config: unknown) => (config as Readonly<Record<string, Settings<Keys>>>)[name]!;
  const learning: OfflineLearning = {
    name,
    settings: settingsOf,
    kind: (config) => (typeof kind === 'function' ? kind(settingsOf(config)) : kind),
    objective: (config, train) => objective(settingsOf(config), train),
  };
  return {
    schema,
    sections: (config: Config) => ({ [name]: settingsOf(config) }),
    paths: ['judge.cache', 'eval_solving.judge_file', 'eval_solving.llm.cache'],
    models: ['judge.path', 'eval_solving.judge_run'],
    *conflicts(config: Config): Generator<Conflict> {
      const settings = settingsOf(config);
      const own = config as unknown as RoundsConfig;
      yield* wholeSolutions(name, own.data);
      // Reference points need prompts of other answers.
      if (comparesProblems?.(settings) && settings.batch_size === 1)
        yield conflict(
          `${name}.batch_size`,
          `${name}.batch_size is 1, and KTO compares prompts with answers to other problems of their batch: with its own ` +
            'answer the reference point would be the reward itself; set it to 2 or more (TRL refuses it too)',
        );
      yield* roundConflicts(own, settings, withoutRounds);
    },
    *unread(config: Config): Generator<Conflict> {
      yield* unreadRoundKeys(config as unknown as RoundsConfig, settingsOf(config));
      yield* unread?.(settingsOf(config)) ?? [];
    },
    load: async () =>
      (await import('./run.js')).answerMethod(learning) as unknown as Method<
        Config & RoundsConfig,
        AnswerData,
        Trainee
      >,
  };
}
