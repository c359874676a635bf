// `method: reward`: how it is configured.

import { z } from 'zod';
import { data, prompt } from '../../config/data.js';
import { evaluation, rewardEvaluation } from '../../config/eval-sections.js';
import { choice, countOrAll, flag, positiveNumber, section } from '../../config/fields.js';
import { lora, model } from '../../config/model.js';
import { run } from '../../config/run.js';
import {
  type BaseHead,
  type Conflict,
  conflict,
  type MethodSchema,
  withoutEffect,
} from '../../config/schema.js';
import { optimization } from '../../config/training.js';
import { unchangedLabels } from '../../config/whole-solutions.js';
import { areReversed, reversedClasses } from '../../data/class-names.js';
import type { HeldOutNeutral } from '../../data/neutral.js';
import { CLASS_WEIGHTS } from '../../data/rare-class.js';
import { CLASSES } from '../../scoring/reward-model/items.js';
import { LAYOUT, NEUTRAL_SCORES, type SettingsOf, verdictSettings } from '../../scoring/settings.js';

const rewardModel = section({
  type: choice('prm', 'orm', 'joint').describe(
    'The units that are scored: every step (`prm`), the whole solution at its end (`orm`), or both by two outputs of one head.',
  ),
  head: choice('scalar', 'classes', 'verdict').describe(
    'A score whose logistic is the probability of right (`scalar`), two classes, or the words `prompt.pos_word` and ' +
      '`prompt.neg_word` of the language model, compared with each other alone. With `data.neutral: class` there are three classes.',
  ),
  neutral_score: z
    .enum(NEUTRAL_SCORES)
    .default('positive')
    .describe(
      'Where the probability of the class of neutral steps (`data.neutral: class`) counts in the score of a step: as right, as ' +
        'wrong, or to neither (`drop`: right and wrong are compared alone).',
    ),
  input: choice('whole', 'prefixes').describe(
    'How steps are read: all in one pass, which only a causal trunk may, or one sequence for each step and all before ' +
      'it, which costs a multiple and gives a causal trunk the same scores.',
  ),
  solutions: choice('auto', 'all', 'finished').describe(
    '`finished` leaves out solutions that state no answer, and counts them; `auto` does so wherever outcomes are ' +
      'learned. A `prm` with `finished` trains on the solutions and tokens of an `orm`.',
  ),
  orm_label: choice('final_answer', 'all_steps_positive').describe(
    'A solution is right if its final answer is (by the source, else compared with the expected one), or if no step ' +
      'is labelled wrong.',
  ),
  after_error: choice('drop', 'negative', 'keep').describe(
    'Steps after the first wrong one: not learned, wrong, or as labelled. A model trained with `drop` never reads ' +
      'a step after an error: its scores of such steps mean nothing.',
  ),
  train_on_last_step_only: flag(false).describe(
    'Learn the label of a solution’s last step alone, by TRL’s name; every labelled step is evaluated.',
  ),
  max_completion_length: countOrAll('all').describe(
    'Max tokens from the first step on, by TRL’s name: a step that ends beyond is not learned, nor evaluated.',
  ),
  soft_labels: flag(false).describe(
    'Learn the scores of steps as probabilities where the data has them, such as shares of rollouts.',
  ),
  class_weight: z
    .enum(CLASS_WEIGHTS)
    .default('auto')
    .describe(
      '`balanced` weights right and wrong as if they were equally frequent; probabilities then no longer follow the data. ' +
        '`auto` does so where one class is below a quarter of what is learned.',
    ),
  outcome_weight: positiveNumber(1).describe(
    'Weight of an outcome in the loss of `type: joint`; each step has 1.',
  ),
  ...optimization({ learning_rate: 1e-4 }),
}).describe('Training a reward model of steps, of outcomes, or of both (`method: reward`).');

const schema = z.strictObject({
  method: z.literal('reward').describe('The training method.'),
  model,
  lora,
  data,
  prompt,
  reward_model: rewardModel,
  run,
  eval: evaluation,
  eval_scores: rewardEvaluation,
});

export type RewardRunConfig = z.output<typeof schema>;

export const rewardConfig: MethodSchema<RewardRunConfig, z.input<typeof schema>> = {
  schema,
  sections: ({ reward_model }) => ({ reward: reward_model }),
  neutralClass: true,
  conflicts,
  *unread({ data, reward_model: own }) {
    const idle = (keys: readonly (keyof typeof own)[], why: string) =>
      withoutEffect('reward_model', own, { keys, why, defaults: rewardModel.parse({}) });
    if (own.type !== 'joint') yield* idle(['outcome_weight'], 'it belongs to reward_model.type joint');
    if (own.type === 'prm') yield* idle(['orm_label'], 'reward_model.type prm learns no outcomes');
    if (own.type === 'orm')
      yield* idle(['after_error', 'soft_labels'], 'reward_model.type orm learns outcomes alone');
    if (data.neutral !== 'class') yield* idle(['neutral_score'], 'data.neutral is not class');
  },
  judge,
  heldOutNeutral,
  otherHead,
};

function* conflicts({
  reward_model: { type, head, solutions, soft_labels, train_on_last_step_only },
  data,
}: RewardRunConfig): Generator<Conflict> {
  if (type !== 'prm' && solutions === 'all')
    yield conflict(
      'reward_model.solutions',
      `is all, and reward_model.type ${type} learns outcomes, which unfinished solutions do not have; set it to finished`,
    );
  if (type === 'joint' && head !== 'scalar')
    yield conflict(
      'reward_model.head',
      `is ${head}, and two outputs of one head are scores; set it to scalar`,
    );
  if (train_on_last_step_only && type !== 'prm')
    yield conflict(
      'reward_model.train_on_last_step_only',
      `is true, and reward_model.type ${type} learns the outcome at the last step; set reward_model.type: prm`,
    );
  if (type !== 'prm' && data.split_unit === 'sample')
    yield conflict(
      'data.split_unit',
      'is sample, which tears solutions apart, and outcomes are of whole ones; set it to problem',
    );
  if (type !== 'prm') {
    yield* unchangedLabels(`reward_model.type ${type}`, data);
    if (data.balance !== 'none')
      yield conflict(
        'data.balance',
        `data.balance ${data.balance} balances steps, and reward_model.type ${type} learns outcomes of whole solutions, which it would lose; use reward_model.class_weight balanced`,
      );
  }
  if (soft_labels && data.label_noise > 0)
    yield conflict(
      'data.label_noise',
      'data.label_noise flips labels, and reward_model.soft_labels learns the scores in their place; set one of them to its default',
    );
  if (data.neutral !== 'class') return;
  if (type !== 'prm' || head !== 'classes')
    yield conflict(
      'data.neutral',
      `data.neutral is class, and reward_model.type ${type} with reward_model.head ${head} has no class for neutral steps; set reward_model.type: prm and reward_model.head: classes`,
    );
  if (soft_labels)
    yield conflict(
      'reward_model.soft_labels',
      'reward_model.soft_labels is true, and probabilities of right leave no class to neutral steps; set it to false',
    );
  if (data.label_noise > 0)
    yield conflict(
      'data.label_noise',
      'data.label_noise flips right and wrong, and data.neutral class has three classes; set it to 0',
    );
}

/** The outputs of the head that is trained: scores, or classes. Verdict words have none. */
export function outputsOf({ data, reward_model: { type, head } }: HeadConfig): number {
  if (data.neutral === 'class') return CLASSES.length;
  return head === 'classes' || type === 'joint' ? 2 : 1;
}

type HeadConfig = Pick<RewardRunConfig, 'data' | 'reward_model'>;

/** A base with a trained head of the same kind, but other outputs, would lose it without a word. */
function otherHead(config: HeadConfig, { kind, numLabels, labels }: BaseHead): string | undefined {
  const { type, head } = config.reward_model;
  const outputs = outputsOf(config);
  if (head === 'verdict' || type === 'joint') return undefined;
  if (kind !== (type === 'orm' ? 'sequence' : 'token')) return undefined;
  if (numLabels === outputs)
    return areReversed(labels ?? []) ? `is a classifier, and ${reversedClasses(labels ?? [])}` : undefined;
  const isNeutral = type === 'prm' && labels?.join() === CLASSES.join();
  const wanted =
    numLabels === 1
      ? 'reward_model.head: scalar'
      : numLabels === 2
        ? 'reward_model.head: classes'
        : isNeutral
          ? 'reward_model.head: classes and data.neutral: class'
          : undefined;
  if (wanted === undefined) return undefined;
  const own = outputs === 1 ? 'one number' : `${outputs} classes`;
  const its = numLabels === 1 ? 'one number' : `${numLabels} classes`;
  return `is a classifier with ${its}, and this run would train a head with ${own} in its place; set ${wanted}, which goes on from the head of the base`;
}

/** How neutral steps are evaluated: if they have a class of their own, they count as it does in the score. */
export function heldOutNeutral(
  { data, reward_model, eval_scores: { neutral } }: RewardRunConfig,
  score: HeldOutNeutral = reward_model.neutral_score,
): HeldOutNeutral {
  return neutral === 'as_trained' && data.neutral === 'class' ? score : neutral;
}

/** The prompt that the head reads: heads of their own have no use for a request in words. */
export function rewardPrompt({ prompt, reward_model }: Pick<RewardRunConfig, 'prompt' | 'reward_model'>) {
  return reward_model.head !== 'verdict' && prompt.template === 'auto'
    ? { ...prompt, template: LAYOUT }
    : prompt;
}

function judge(config: RewardRunConfig): SettingsOf<'reward_model'> {
  const { type, head, input, neutral_score } = config.reward_model;
  const neutral = config.data.neutral === 'class' ? { neutral_score } : {};
  const { threshold } = config.eval_scores;
  const common = {
    ...verdictSettings({ ...config, eval_verdicts: config.eval_scores }),
    threshold: typeof threshold === 'number' ? threshold : 0.5,
    prompt: rewardPrompt(config),
    kind: 'reward_model',
  } as const;
  return { ...common, type, head, input, ...neutral };
}
