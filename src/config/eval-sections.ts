// Config sections `eval`, which every method has, and those of what only some evaluate.
import { z } from 'zod';
import { HELD_OUT_NEUTRAL } from '../data/neutral.js';
import { SELECTIONS } from '../data/rare-class.js';
import { choice, countOrAll, flag, section } from './fields.js';

export const evaluation = section({
  max_samples: countOrAll('all').describe(
    'Max of what is held out to evaluate on (solutions, or problems to solve), drawn by `data.seed`; fewer is faster and noisier.',
  ),
}).describe('Evaluation on what is held out.');

/** Treatment of neutral steps in held-out data. */
const neutral = z
  .enum(HELD_OUT_NEUTRAL)
  .default('as_trained')
  .describe(
    'The class of neutral steps of validation and test, whatever training does with them; `drop` leaves them out, so that runs which ' +
      'differ in `data.neutral` are judged on the same steps.',
  );

export const verdictEvaluation = section({
  neutral,
  invalid_as_wrong: flag(true).describe(
    'Count a verdict that is neither word as wrong for its class; false leaves it out and reports the count.',
  ),
  threshold: z
    .union([z.literal('auto'), z.literal('greedy'), z.literal('validation'), z.number().gt(0).lt(1)])
    .default('auto')
    .describe(
      '`validation` chooses the threshold on the probability of pos_word at which the validation steps have the highest macro F1, and keeps ' +
        'it with the judge, for `judge`, `serve` and rewards too; `auto` does so where one class is below a quarter of the training ' +
        'steps, and else is `greedy`. With `likelihood` it is always that. `greedy` takes the most likely token of the whole vocabulary as the verdict; with a number the verdict is ' +
        '"right" if the probability of pos_word among the two words reaches it, and every verdict is readable, unless it ' +
        'stands after a reason that did not end.',
    ),
  metric_for_best_model: choice('auto', ...SELECTIONS).describe(
    'The metric on validation steps that selects the parameters which a stage keeps (`load_best_model_at_end`): macro F1 of the verdicts, AUC, or ' +
      'macro F1 at the threshold that is best for it (`best_f1_macro`). `auto`: AUC where one class is below a quarter of the training ' +
      'steps, since F1 then is mostly noise; else macro F1.',
  ),
  likelihood: z
    .union([z.boolean(), z.literal('calculations')])
    .default(false)
    .meta({ expects: 'true, false or "calculations"' })
    .describe(
      'At the end, also judge by how likely the base without its adapter finds the tokens of a step and of those before it, weighed with the ' +
        'verdict words by a logistic regression on validation steps. The adapter is kept as that judge, and the metrics of the run are ' +
        'its own; those of the words alone stand beside them. Of use where the base itself writes such solutions; needs an adapter (`lora`). `calculations` ' +
        'asks no base: what a step writes out, such as `12 + 7 = 19`, is computed exactly, in anybody’s words.',
    ),
}).describe('How verdicts on held-out steps are read and counted.');

export const rewardEvaluation = section({
  neutral,
  after_error: choice('as_trained', 'drop', 'keep').describe(
    'Steps of validation and test after the first wrong one: treated as `reward_model.after_error` treats them in training, not counted, or ' +
      'counted as the data labels them. Runs which differ in `reward_model.after_error` are judged on the same steps with `drop` or `keep`.',
  ),
  threshold: z
    .union([z.literal('auto'), z.literal('validation'), z.number().gt(0).lt(1)])
    .default('auto')
    .describe(
      'A step or solution counts as right from this probability on. `validation` chooses the one at which the validation part has the ' +
        'highest macro F1, and keeps it with the model; `auto` does so where one class is below a quarter of what is learned, and else is 0.5.',
    ),
}).describe('How the scores of a reward model on held-out solutions are read and counted.');

/** The threshold that holds where none is chosen. */
export const fixedThreshold = (threshold: 'auto' | 'validation' | 'greedy' | number): 'greedy' | number =>
  typeof threshold === 'number' ? threshold : 'greedy';
