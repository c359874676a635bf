// Config section `reward` of `method: ppo`: the reward of a solution.
import { z } from 'zod';
import {
  choice,
  count,
  flag,
  nonNegative,
  optionalText,
  positiveNumber,
  section,
} from '../../config/fields.js';
import { AGGREGATIONS } from '../../eval/solving/aggregation.js';

/** The implicit reward model in checkpoints, in metrics, and the name of its folder. */
export const IMPLICIT = 'implicit';

const source = (weight: number) => ({
  weight: z.number().default(weight).describe('Weight in the sum; 0 leaves the source out.'),
  scale: z.number().default(1).describe('Multiplies the source’s rewards before they are clipped.'),
  clip: nonNegative(0).describe('Rewards are clipped to ± this; 0 for no clipping.'),
  whiten: z
    .union([z.boolean(), z.literal('base')])
    .default(false)
    .describe(
      'Normalise them to mean 0 and standard deviation 1 over the rollout batch (`true`), or over solutions of the model before ' +
        'training (`base`), so that rewards keep one scale for the whole run.',
    ),
  shuffle: z
    .union([z.boolean(), z.literal('problem')])
    .default(false)
    .describe(
      'A control: the rewards of a rollout batch are shuffled among its solutions, rewards of steps among all of its steps; ' +
        '`problem`: only among the solutions of each problem, so that differences between problems stay.',
    ),
});

const model = {
  model: optionalText().describe(
    'The model, by name: a run, an adapter, `word-problems-judge` of the package, or a classification model (a directory or hub id).',
  ),
  scorer: optionalText().describe(
    'The scorer of a run with several, by name, such as `verdict` or `reward`. Default: the first; for `outcome`, the scorer of outcomes of a joint or implicit model.',
  ),
  unread: z.number().default(0).describe('The reward of a solution or step that the model cannot read.'),
};

/** Rewards of an environment need no control by shuffling, since no model gives them. */
const { shuffle: _shuffle, ...paid } = source(0);

export const reward = section({
  environment: section(paid).describe(
    'The rewards that `rollout.environment` gives to turns; with placement `last` their sum.',
  ),
  rule: section(source(1)).describe('1 for the right final answer, else 0.'),
  format: section({
    ...source(0),
    pattern: optionalText().describe(
      'A regular expression of JavaScript (flags s and u) for some part of the text. Default: the text gives its answer in a box, behind #### or in words.',
    ),
  }).describe('1 for the form that is asked for, else 0.'),
  length: section({
    ...source(0),
    from: count(128).describe('Tokens up to which it is 0.'),
    to: count(256).describe('Tokens at which it is −1; in between it falls evenly.'),
  }).describe('From 0 to −1 for long solutions.'),
  steps: section({
    ...source(0),
    ...model,
    aggregation: z
      .enum(AGGREGATIONS)
      .default('min')
      .describe('How the scores of steps become one, where the reward is placed at the last token.'),
    until_wrong: flag(false).describe(
      'Put together the scores up to the first below one half: what a model trained with `after_error: drop` knows.',
    ),
  }).describe('A model that scores steps (a PRM).'),
  outcome: section({ ...source(0), ...model }).describe(
    'A model of outcomes (an ORM): its score of the last step is that of the solution.',
  ),
  oracle: section({
    ...source(0),
    aggregation: z.enum(AGGREGATIONS).default('min').describe('As in `steps`.'),
  }).describe('The exact judge of steps of generated word problems: what a perfect reward model is worth.'),
  reference: section({
    ...source(0),
    aggregation: z
      .enum(AGGREGATIONS)
      .default('mean')
      .describe('As in `steps`; steps after the first wrong one count as 0.'),
  }).describe(
    'Exact arithmetic and the worked solutions of the data: wrong is the first step whose equation does not hold or whose value neither ' +
      'solution nor problem has.',
  ),
  implicit: section({
    weight: z.number().default(0).describe('Weight of its rewards; 0 leaves it out.'),
    beta: positiveNumber(0.05).describe(
      'A token’s reward is beta · (log-prob − that of the model with which the run began).',
    ),
    learning_rate: positiveNumber(1e-5).describe('Constant rate of AdamW; the rest is as in `ppo`.'),
    max_grad_norm: nonNegative(10).describe(
      'Gradients with a larger global norm are scaled down to it; 0 for no clipping.',
    ),
  }).describe(
    'An implicit reward model that learns online (PRIME): an adapter that begins as the model itself, rewards every token, and learns ' +
      'once from the outcomes of each rollout batch that it has rewarded.',
  ),
  function: section({
    ...source(0),
    module: optionalText().describe(
      'A module of JavaScript (or of TypeScript that Node can load) whose default export gets solutions and returns their rewards.',
    ),
    batch: count(64).describe('Max solutions of a call.'),
    timeout: positiveNumber(60).describe('Seconds that a call may take.'),
  }).describe('A function of your own.'),
  placement: choice('last', 'step').describe(
    'Where the reward stands: all of it at the last token, or the rewards of steps at the last token of each step (from sources that judge steps).',
  ),
  bound: choice('none', 'clip', 'delta').describe(
    'With placement `step`, what keeps easy steps from being repeated: `clip` is min(r − bound_margin, 0); `delta` is r less the next ' +
      'step’s, so that the sum is the first one’s.',
  ),
  bound_margin: z.number().default(0.5).describe('The margin of bound `clip`.'),
  base_problems: count(64).describe(
    'Training problems that the model solves before training, to take the scale of `whiten: base` from.',
  ),
}).describe('The reward of a solution (`method: ppo`): the weighted sum of its sources.');
