// The sections of methods that learn in rounds from what their model samples.
import { z } from 'zod';
import {
  choice,
  count,
  countOrAll,
  countOrOff,
  flag,
  fraction,
  optionalText,
  section,
  servedTemperature,
  shared,
  text,
} from '../../../config/fields.js';
import { sampling as samplingKeys } from '../../../config/sampling.js';

/** The keys of rounds in a method's own section. */
export const roundKeys = (iterations: number) =>
  shared('rounds', {
    iterations: countOrOff(iterations).describe(
      'Rounds of sampling, labelling and training. 0: train once on the labelled answers of the data, without sampling.',
    ),
    reference: choice('previous', 'm0').describe(
      'The reference that the policy of a round is compared with: the model that the round begins with, or the one that the run began with.',
    ),
  });

export const sampling = section({
  ...samplingKeys({ num_generations: 8 }),
  problems_per_iteration: countOrAll('all').describe('Problems that are sampled in a round.'),
  fresh_problems: flag(true).describe('Each round takes the next problems; off: all rounds take the same.'),
  dedupe: flag(true).describe('Leave out samples of a problem that are equal, word for word.'),
  balance_per_problem: flag(false).describe(
    'Keep as many right as wrong samples of each problem, the first ones.',
  ),
  drop_unanimous: flag(false).describe(
    'Leave out problems whose samples are all right or all wrong. KTO does not need both.',
  ),
}).describe('How solutions are sampled: the candidates of a round, and those of the evaluation.');

/** Keys of a judge that is a language model. */
export const endpoint = {
  url: text('http://127.0.0.1:8000/v1').describe('Base URL of an OpenAI-compatible server.'),
  model: text('default').describe('Name of the model at that server.'),
  api_key_env: text('OPENAI_API_KEY').describe(
    'Environment variable with the key, if the server wants one; the key itself is never written down.',
  ),
  temperature: servedTemperature(0).describe('Temperature of the judge.'),
  max_tokens: count(1024).describe('Max tokens of a judgement.'),
  retries: countOrOff(2).describe(
    'How often to ask again after an answer that is not the JSON asked for; then the steps stay unlabelled.',
  ),
  concurrency: count(8).describe('Requests at once.'),
  requests_per_minute: countOrOff(0).describe('Max requests per minute; 0 for no limit.'),
  timeout: count(120).describe('Seconds to wait for a connection, and between bytes.'),
  token_budget: countOrOff(0).describe(
    'Tokens read and written after which the run stops; resumed with more, it pays for nothing twice. 0 for no limit.',
  ),
  cache: optionalText().describe(
    'File of judgements, which runs may share. Default: judge-cache.jsonl in the run directory (eval-judge-cache.jsonl of the judge that evaluates).',
  ),
};

export const judge = section({
  kind: choice('oracle', 'reference', 'completions', 'run', 'file', 'llm', 'none').describe(
    'The labeller of steps: `oracle` (the plan of generated problems), `reference` (exact arithmetic and the worked solution of the data), ' +
      '`completions` (where the model that the round begins with still reaches the answer), `run` (the model of another run of this ' +
      'package that judges steps: verdicts, or a reward model of steps), `file` (labels that were made elsewhere), `llm` (a language ' +
      'model behind an OpenAI-compatible server), or `none` (outcomes alone, which makes the method KTO).',
  ),
  path: optionalText().describe(
    'The judge (`run`: a run, an adapter, `word-problems-judge` of the package, a classification model of tokens), or the file of records (`file`).',
  ),
  completions: count(8).describe(
    'Completions of each step, drawn as the candidates are (`completions`): the step is right if one of them reaches the answer.',
  ),
  outcome: choice('answer', 'clean').describe(
    'A candidate is right by its answer, or (`clean`) by its answer and no step that the judge calls wrong.',
  ),
  flip: fraction(0).describe('A control: the share of step labels that are flipped, drawn by `run.seed`.'),
  control: choice('none', 'shuffled', 'outcome', 'wrong').describe(
    'A control of what labels of steps say: `shuffled` deals them out anew among the labelled steps of a few problems, so that as many are ' +
      'right as before; `outcome` gives each the label of its whole solution; `wrong` calls every labelled step wrong, a constant penalty.',
  ),
  ...endpoint,
}).describe('The judge that labels steps. Who labels never evaluates.');

export const solvingEvaluation = section({
  solve: flag(false).describe(
    'Solve held-out problems before and after training, also without rounds. Rounds always do.',
  ),
  num_generations: countOrOff(8).describe(
    'Samples of each problem, for the vote of Maj@k; 0: greedy ones alone.',
  ),
  judge: z
    .enum(['oracle', 'reference', 'run', 'file', 'llm', 'none'])
    .default('none')
    .describe(
      'The judge of the steps of held-out solutions (with `solve`, or rounds). Not the judge that labels, whose mistakes the policy learns; the oracle ' +
        'makes none and may do both; `reference` may too, and says nothing of what it cannot read.',
    ),
  judge_run: optionalText().describe('The name of that judge (`run`), as for `judge.path`.'),
  judge_file: optionalText().describe('Records with its labels (`file`).'),
  llm: section(endpoint).describe('The language model of that judge (`llm`), and what it may cost.'),
}).describe('Solving of held-out problems: before the first round and after each, or once at the end.');
