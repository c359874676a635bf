// What the configurations of the offline methods share.
import type { z } from 'zod';
import { data } from '../../config/data.js';
import { section } from '../../config/fields.js';
import { lora, model } from '../../config/model.js';
import { question } from '../../config/question.js';
import { run } from '../../config/run.js';
import type { AnswerBatchConfig, Conflict, MethodSchema } from '../../config/schema.js';
import { answerBatches } from '../../config/training.js';
import { wholeSolutions } from '../../config/whole-solutions.js';
import { type RoundSettings, roundConflicts } from '../rounds/config.js';
import { evaluation, judge, roundKeys, sampling } from '../rounds/sections.js';

/** The sections that every offline method has. */
export const frame = { model, lora, data, question, sampling, judge, run, eval: evaluation };

/** A section of an offline method: the keys of rounds, of every stage, and of its objective. */
export function offlineSection<Shape extends z.ZodRawShape>(
  {
    iterations = 0,
    ...defaults
  }: { readonly learning_rate: number; readonly batch_size: number; readonly iterations?: number },
  objective: Shape,
) {
  return section({
    ...roundKeys(iterations),
    ...answerBatches({
      num_train_epochs: 1,
      micro_batch_tokens: 4096,
      warmup_ratio: 0.1,
      lr_scheduler_type: 'cosine',
      weight_decay: 0,
      ...defaults,
    }),
    ...objective,
  });
}

/** The configuration of an offline method, as its stages see it. */
export type OfflineFrame = z.output<z.ZodObject<typeof frame>>;

/** The row of `table.ts`, but for what loads it. `name`: the method, and its section. */
export function offlineSchema<Config extends OfflineFrame & { readonly method: string }, Input>(
  schema: z.ZodType<Config, Input>,
  sectionOf: (config: Config) => { readonly name: string; readonly settings: RoundSettings },
  conflicts: (config: Config) => readonly Conflict[] = () => [],
): MethodSchema<Config, Input> {
  return {
    schema,
    sections(config) {
      const { name, settings } = sectionOf(config);
      return { [name]: settings };
    },
    paths: ['judge.path', 'judge.cache', 'eval.judge_run', 'eval.judge_file', 'eval.llm.cache'],
    conflicts(config) {
      const { method, data } = config;
      const { settings } = sectionOf(config);
      return [...wholeSolutions(method, data), ...conflicts(config), ...roundConflicts(config, settings)];
    },
  };
}

/** Reference points need prompts of other answers. */
export function loneBatch(name: string, { batch_size }: AnswerBatchConfig): Conflict[] {
  if (batch_size > 1) return [];
  return [
    {
      path: [name, 'batch_size'],
      message:
        `${name}.batch_size is 1, and KTO compares prompts with answers to other problems of their batch: with its own ` +
        'answer the reference point would be the reward itself; set it to 2 or more (TRL refuses it too)',
    },
  ];
}
