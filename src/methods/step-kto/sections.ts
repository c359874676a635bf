// The sections of `method: step_kto`.
import { z } from 'zod';
import { count, countOrAll, countOrOff, positiveNumber, section, text } from '../../config/fields.js';
import { sampling as samplingKeys } from '../../config/sampling.js';
import { offlineSection } from '../offline/config.js';
import { beta, classWeight } from '../offline/fields.js';

export const stepKto = offlineSection(
  { learning_rate: 1e-5, batch_size: 64 },
  {
    iterations: countOrOff()
      .default(3)
      .describe(
        'Rounds of sampling, labelling and training. 0: train once on the labelled answers of the data, without sampling.',
      ),
    reference: z
      .enum(['previous', 'm0'])
      .default('previous')
      .describe(
        'What the policy is compared with: the model that a round begins with, or the one that the run began with.',
      ),
    beta: beta(),
    beta_step: z
      .union([z.literal('same'), positiveNumber()])
      .default('same')
      .meta({ expects: '"same" or a positive number' })
      .describe(
        'The same for steps. Their log-ratios are smaller by about the number of steps; `beta` times that number makes up for it.',
      ),
    outcome_weight: z.number().min(0).default(1).describe('Weight of the loss of answers.'),
    step_weight: z
      .number()
      .min(0)
      .default(1)
      .describe(
        'Weight of the loss of steps. 0 is KTO; under `mean`, about the number of steps makes both pull alike.',
      ),
    reduction: z
      .enum(['mean', 'sum', 'global'])
      .default('mean')
      .describe(
        'Losses of the steps of an answer: their mean, their sum, or equal weights for all steps of the batch.',
      ),
    desirable_weight: classWeight('right answers'),
    undesirable_weight: classWeight('wrong answers'),
    desirable_weight_step: classWeight('right steps'),
    undesirable_weight_step: classWeight('wrong steps'),
    auto_balance: z
      .boolean()
      .default(false)
      .describe(
        'Raise the weight of the class that weighs too little, by the labels of the training data and for answers and steps ' +
          'apart, until right ones weigh 1 to 4/3 times as much as wrong ones (equation 8 of KTO).',
      ),
    z0: z
      .enum(['batch_kl', 'zero'])
      .default('batch_kl')
      .describe('Reference point of answers: the mean log-ratio of answers to other problems, or 0.'),
    z0_step: z
      .enum(['step_kl', 'share', 'zero', 'outcome'])
      .default('step_kl')
      .describe(
        'Reference point of steps: the mean log-ratio of the steps of answers to other problems, that of answers divided by ' +
          'their steps, 0, or that of answers itself (nearly always too large).',
      ),
    after_first_error: z
      .enum(['keep', 'mask', 'negative'])
      .default('keep')
      .describe('Steps after the first wrong one: as they are labelled, without a label, or wrong.'),
    answer_step: z
      .enum(['keep', 'exclude'])
      .default('keep')
      .describe('Whether the last step, which gives the answer, counts as a step.'),
  },
).describe('Step-KTO: answers by their outcome, steps by their judgement (`method: step_kto`).');

export const sampling = section({
  ...samplingKeys({ num_generations: 8 }),
  problems_per_iteration: countOrAll().default('all').describe('Problems that are sampled in a round.'),
  fresh_problems: z
    .boolean()
    .default(true)
    .describe('Each round takes the next problems; off: all rounds take the same.'),
  dedupe: z.boolean().default(true).describe('Leave out samples of a problem that are equal, word for word.'),
  balance_per_problem: z
    .boolean()
    .default(false)
    .describe('Keep as many right as wrong samples of each problem, the first ones.'),
  drop_unanimous: z
    .boolean()
    .default(false)
    .describe('Leave out problems whose samples are all right or all wrong. KTO does not need both.'),
}).describe('The candidates of a round.');

/** Of `kind: llm`. */
const endpoint = {
  url: text().default('http://127.0.0.1:8000/v1').describe('Base URL of an OpenAI-compatible server.'),
  model: text().default('default').describe('Name of the model at that server.'),
  api_key_env: text()
    .default('OPENAI_API_KEY')
    .describe(
      'Environment variable with the key, if the server wants one; the key itself is never written down.',
    ),
  temperature: z.number().min(0).default(0).describe('Temperature of the judge.'),
  max_tokens: count().default(1024).describe('Max tokens of a judgement.'),
  retries: countOrOff()
    .default(2)
    .describe(
      'How often a judgement that is not the JSON asked for is asked for again; after that the steps stay unlabelled.',
    ),
  concurrency: count().default(8).describe('Requests at once.'),
  requests_per_minute: countOrOff().default(0).describe('Max requests per minute; 0 for no limit.'),
  timeout: count().default(120).describe('Seconds to wait for a connection, and between bytes.'),
  token_budget: countOrOff()
    .default(0)
    .describe(
      'Tokens read and written after which the run stops; resumed with more, it pays for nothing twice. 0 for no limit.',
    ),
  cost_budget: z
    .number()
    .min(0)
    .default(0)
    .describe('The same in money, by the prices below; 0 for no limit.'),
  price_input: z.number().min(0).default(0).describe('Price of a million tokens that the judge reads.'),
  price_output: z.number().min(0).default(0).describe('Price of a million tokens that it writes.'),
  cache: text()
    .optional()
    .describe('File of judgements, which runs may share. Default: judge-cache.jsonl in the run directory.'),
};

export const judge = section({
  kind: z
    .enum(['oracle', 'run', 'file', 'llm', 'none'])
    .default('oracle')
    .describe(
      'Who labels the steps: `oracle` (the plan of generated problems), `run` (the model of another run of this ' +
        'package that judges steps: verdicts, or a reward model of steps), `file` (labels that were made elsewhere), `llm` (a language model behind an OpenAI-compatible server), ' +
        'or `none` (outcomes alone, which makes the method KTO).',
    ),
  path: text().optional().describe('The run directory (`run`), or the file of records (`file`).'),
  ...endpoint,
}).describe('The judge that labels steps. Who labels never evaluates.');

export const evaluation = section({
  max_samples: countOrAll().default('all').describe('Max held-out problems to solve.'),
  num_generations: countOrOff()
    .default(8)
    .describe('Samples of each problem, for the vote of Maj@k; 0: greedy ones alone.'),
  judge: z
    .enum(['oracle', 'run', 'none'])
    .default('none')
    .describe(
      'Who judges the steps of held-out solutions. Not the judge that labels, whose mistakes the policy learns; the oracle ' +
        'makes none and may do both.',
    ),
  judge_run: text().optional().describe('The run directory of that judge (`run`).'),
}).describe('Solving held-out problems before the first round and after each.');
