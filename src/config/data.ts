// Config sections `data` and `prompt`: the data, and the text that the model reads.
import { z } from 'zod';
import { BALANCES } from '../data/balance.js';
import { GENERATED } from '../data/generated.js';
import { TEMPLATE_CHOICES } from '../data/problems/choices.js';
import { LEVELS } from '../data/problems/levels.js';
import { MISTAKES, USUAL_MISTAKES } from '../data/problems/solution.js';
import { SOURCE_NAMES } from '../data/sources/source.js';
import { SEGMENTATIONS } from '../records/segment.js';
import {
  choice,
  count,
  countOrAll,
  flag,
  nonNegative,
  optionalText,
  positiveShare,
  section,
  seed,
  share,
  text,
} from './fields.js';

const arithmetic = section({
  samples: count(2000).describe('Problems to generate, over all splits.'),
  steps: count().max(64).default(4).describe('Additions and subtractions per problem.'),
  max_operand: count()
    .max(1_000_000)
    .default(20)
    .describe('Max number added or subtracted, and max start value.'),
  max_value: count()
    .max(1_000_000_000)
    .default(99)
    .describe('Max value of any result, wrong ones too; 99 keeps every value at two digits.'),
  error_rate: share(0.5).describe(
    'Probability that a step has a wrong result: 0.5 gives balanced verdicts, 0 gives solutions to learn.',
  ),
  carried_error: choice('own', 'incorrect').describe(
    'A step that continues correctly from a wrong value: judged by its own arithmetic (`own`), or wrong too.',
  ),
}).describe(
  'The built-in generator of step-labelled arithmetic (`source: arithmetic`), deterministic from `data.seed`.',
);

const rate = (what: string) => share(0).describe(what);

const wordProblems = section({
  samples: count(2000).describe('Problems to generate, over all splits.'),
  levels: z
    .array(nonNegative())
    .min(1)
    .max(LEVELS.length)
    .refine((shares) => shares.some((share) => share > 0))
    .default([1, 1, 1])
    .meta({ expects: `the shares of levels 1 to ${LEVELS.length}, such as [1, 1, 1]` })
    .describe('How often each level occurs, from level 1 on: more operations and larger numbers at each.'),
  templates: z
    .enum(TEMPLATE_CHOICES)
    .default('seen')
    .describe(
      'Templates for training and tests (`seen`), those for tests of something new (`held_out`), or `all`.',
    ),
  error_rate: rate('Probability that a step goes wrong: 0 gives solutions to learn.'),
  mistakes: z
    .array(z.enum(MISTAKES))
    .min(1)
    .default([...USUAL_MISTAKES])
    .meta({ expects: `a list of ${MISTAKES.join(', ')}` })
    .describe(
      'How: a wrong result (`slip`), another operation, another number (`copied`), a step left out (`dropped`), a result with its ' +
        'digits `swapped`, the name of another `quantity`, an `answer` that does not follow from the lines before it.',
    ),
  misread_rate: rate(
    'Probability that a step is misread where the wording may mislead (two thirds of the wordings): a misconception.',
  ),
  unnamed_rate: rate(
    'Probability that the lines of a solution do not say what they compute: `12 + 7 = 19` or `12+7=19` in place of `Tom: 12 + 7 = 19`.',
  ),
  drill_rate: rate(
    'Share of drills, computations under names without a story, among the training samples of the first half; for `method: pretrain` alone.',
  ),
  attempt_rate: rate(
    'Share of the training samples that show the first lines of an attempt, a question mark and as many lines of the worked solution, mostly with the attempt’s last result after them; ' +
      'mistakes then stand in attempts alone. For `method: pretrain`.',
  ),
  comparison_rate: rate(
    'Share of the training samples that compare two results without a story (`Tom: 12 + 7 = 19; Tom: 18`, and then 1 or 0); for `method: pretrain`.',
  ),
}).describe(
  'The built-in generator of word problems (`source: word_problems`), deterministic from `data.seed`.',
);

const prm800k = section({
  phase: z
    .union([z.literal(1), z.literal(2), z.literal('both')])
    .default('both')
    .describe('Rows of the first collection phase, of the second, or both.'),
  alternatives: flag(true).describe(
    'Also use the completions that were rated but not chosen, each after the steps before it.',
  ),
  human: choice('context', 'positive').describe(
    'A step that the labeler wrote: context for later steps only, or a right step to learn.',
  ),
  null_rating: choice('skip', 'neutral').describe(
    'A completion without a rating: left without a label, or neutral.',
  ),
  flagged: choice('skip', 'keep').describe('Completions that a labeler flagged as unusable.'),
  quality_control: choice('skip', 'keep').describe('Rows that checked labelers.'),
  initial_screening: choice('skip', 'keep').describe('Rows that screened new labelers.'),
  skip_finish_reasons: z
    .array(text())
    .default(['bad_problem', 'give_up'])
    .describe('Rows whose labelling ended with one of these reasons are left out.'),
}).describe('How PRM800K is read.');

const part = () => z.number().positive().max(1000);

const trainingFile = z.union([
  text(),
  z.strictObject({
    path: text().describe('A path, pattern or hub id.'),
    weight: part().optional().describe('How often each solution stands there, on average.'),
    share: part().optional().describe('In place of a weight: its part of the training solutions.'),
  }),
]);

export const data = section({
  source: choice('auto', ...SOURCE_NAMES, ...GENERATED).describe(
    'Layout of the files. `auto` detects it from the first row; `record` is this package’s own layout, ' +
      '`problems` any benchmark’s layout of problems with answers (GSM8K, MATH, …; detected last, by methods that need no labels of steps); `arithmetic` and `word_problems` generate problems and read no file, as does `word_problem_turns`: the latter’s solutions as turns of an agent with an exact calculator, which makes no slip.',
  ),
  train: z
    .union([text(), z.array(trainingFile).min(1)])
    .optional()
    .meta({ expects: 'a path, or a list of paths, of {path, weight} or of {path, share}' })
    .describe(
      'Training data: a file or directory (.jsonl, .json, .csv, each also .gz; .parquet), a pattern with `*`, or a data ' +
        'set of the Hugging Face hub as `owner/name`, optionally with `@revision` and `:split` or `:file`. Or a list of such, each ' +
        'alone or as `{path: …, weight: …}`: the training part holds each training solution `weight` times on average, the fraction drawn by ' +
        '`data.seed`; `0.3` keeps three of ten. Or each as `{path: …, share: …}`: the files have these parts of the training solutions, ' +
        'as many as there are with each row taken once.',
    ),
  validation: optionalText().describe(
    'Data for evaluations during training, in the same form. Default: a share of `train`.',
  ),
  test: optionalText().describe(
    'Data for the final evaluation, in the same form. Default: a share of `train`.',
  ),
  columns: z
    .record(text(), text())
    .default({})
    .meta({ expects: 'column names of the layout with those of the files' })
    .describe(
      'Columns under other names: the name in the layout, and the one in the files, such as `{problem: question, solution: answer}`; ' +
        'applies to every file of `data`.',
    ),
  group_by: optionalText().describe(
    'A column by whose values the final evaluation is broken down too, such as `classification` of PRMBench; every row needs it.',
  ),
  neutral: choice('positive', 'negative', 'drop', 'class').describe(
    'The class of a neutral step (rating 0 in PRM800K); `class` is a third class beside right and wrong, which `method: reward` ' +
      'learns with `reward_model.head: classes`.',
  ),
  label_threshold: positiveShare(0.5).describe(
    'A step whose label is a number from 0 to 1 (layout `stepwise`), such as a share of rollouts, is right from this value on; the number stays its `score`.',
  ),
  turns: choice('all', 'last').describe(
    'The replies of a conversation (`messages`, `conversations`) that are learned, each after all that comes before it; in a conversation with a label always the last.',
  ),
  split: z
    .tuple([nonNegative(), nonNegative(), nonNegative()])
    .default([8, 1, 1])
    .meta({ expects: 'three shares for training, validation and test, such as [8, 1, 1]' })
    .describe('Shares of training, validation and test rows; a part with its own file takes no share.'),
  split_unit: choice('problem', 'sample').describe(
    'The unit that the split keeps together. `sample` lets steps of one problem fall on both sides, which inflates the ' +
      'evaluation.',
  ),
  seed: seed()
    .default(0)
    .describe(
      'Seed of the split and the generator. Separate from `run.seed`, so that runs with other seeds share one test set.',
    ),
  max_length: count(1024).describe(
    'Max sequence length in tokens, at most what the base reads. Steps beyond it are not read; they are counted and reported.',
  ),
  max_samples: countOrAll('all').describe('Max training solutions, sampled by `data.seed`.'),
  on_bad_row: choice('error', 'skip').describe(
    'A row that cannot be read stops the run, or is skipped, counted and reported.',
  ),
  on_overlap: choice('warn', 'skip').describe(
    'A training solution whose problem stands in the file of `validation` or `test` too, word for word or nearly, brings a warning, or is ' +
      'left out and counted.',
  ),
  labelled: countOrAll('all').describe(
    'Training solutions that keep their labels, sampled by `data.seed`; the steps of all others become unlabelled, for ' +
      'methods that learn from such steps (`verdict_ppo.steps`).',
  ),
  rationales: countOrAll('all').describe(
    'Training solutions that keep their reasons (`rationale` of a step), sampled by `data.seed`. The warm-up of verdicts after reasons ' +
      'learns from these alone; what follows needs labels only.',
  ),
  label_noise: nonNegative()
    .max(0.5)
    .default(0)
    .describe(
      'Share of the training labels of steps that are flipped, by `data.seed`; validation and test stay exact.',
    ),
  balance: z
    .enum(BALANCES)
    .default('none')
    .describe(
      'Balances right and wrong training steps: `downsample` leaves out steps of the more frequent class, `upsample` ' +
        'repeats the rarer one.',
    ),
  max_steps: countOrAll('all').describe('Max steps of a solution to judge.'),
  prm800k,
  arithmetic,
  word_problems: wordProblems,
}).describe('The data.');

export const prompt = section({
  template: text('auto').describe(
    'The text around a judged step, with the placeholders {problem} and {steps}; what follows {steps} asks for the ' +
      'verdict. `compact` is a bare layout for small models, `chat` a request in the tokenizer’s chat template, and ' +
      '`auto` is `chat` if the tokenizer has such a template and `compact` otherwise. `trl`: the tokens of problem, steps and ' +
      'separators, each tokenised by itself, as TRL’s PRMTrainer joins them.',
  ),
  step_separator: text()
    .exactOptional()
    .describe('The text that ends every step of `template: trl`, by TRL’s name; absent: a line break.'),
  segmentation: z
    .enum(SEGMENTATIONS)
    .exactOptional()
    .describe(
      'The rule by which the judge cuts a text into steps where it is given no list of them (`judge`, `score`); that of ' +
        'the training rows, as `data segment` wrote them. Kept in the card. Absent: paragraphs, or lines.',
    ),
  pos_word: text('+').describe('The verdict word for a right step.'),
  neg_word: text('-').describe('The verdict word for a wrong step.'),
  response_format: choice('verdict', 'rationale_then_verdict').describe(
    'The verdict word alone, or a line with a reason and then the word. A reason is written by the model, so each ' +
      'evaluation samples; the warm-up learns from the reasons of the data (`rationale` of a step).',
  ),
  rationale_tokens: count(64).describe(
    'Max tokens of a reason, its line break included; after a longer one the verdict cannot be read.',
  ),
}).describe('The prompt for a verdict and the words of the answer.');
