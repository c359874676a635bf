// Config section `corrections`: how samples with self-corrections are made of right solutions.
import { z } from 'zod';
import { LARGEST_SERVED_TEMPERATURE } from '../generate/options.js';
import {
  choice,
  count,
  countOrAll,
  flag,
  nonNegative,
  optionalText,
  positiveShare,
  samplingTemperature,
  section,
  servedTemperature,
  text,
} from './fields.js';
import { rowsTogether } from './sampling.js';
import { type Conflict, conflict, withoutEffect } from './schema.js';

const topP = () =>
  positiveShare(0.95).describe('Draw from the most likely tokens that together reach this probability.');

const sample = section({
  n: count().max(16).default(4).describe('Candidates for a wrong step at each position.'),
  temperature: samplingTemperature(1.2).describe('High: more of the candidates are wrong, and in more ways.'),
  top_p: topP(),
  max_new_tokens: count(128).describe('Max tokens of a step; one that is cut off is no candidate.'),
}).describe('Sampling of wrong steps, each after a right beginning.');

const validate = section({
  by: choice('continuations', 'reference').describe(
    'A candidate is wrong if none of its continuations reaches the answer, or by exact arithmetic: if its equation does not hold, or its ' +
      'value is one that worked solution and problem do not have (`reference`; nothing is drawn, and the keys below are for nothing).',
  ),
  k: count(8).describe('Continuations of each candidate: it is wrong if none of them reaches the answer.'),
  temperature: samplingTemperature(0.7).describe('Temperature of the continuations.'),
  top_p: topP(),
  max_new_tokens: count(512).describe('Max tokens of a continuation.'),
  require_true_step_pass: flag(true).describe(
    'Control: a position counts only if one of k continuations of the right step reaches the answer. Without it, steps of problems that ' +
      'the model cannot solve pass for wrong.',
  ),
}).describe('Which candidates are wrong.');

const annotate = section({
  teacher: choice('auto', 'oracle', 'plain', 'remote').describe(
    'The writer of reflections and improvements: the generator’s `oracle`, a model behind an endpoint (`remote`), or nobody (`plain`: one ' +
      'sentence, and the right step). `auto` is `oracle` for generated problems, `remote` with a `url`, and else `plain`.',
  ),
  url: optionalText().describe('OpenAI-compatible endpoint of the teacher, without /v1.'),
  model: optionalText().describe('The teacher’s name at that server.'),
  key_env: text('STEPTRAIN_API_KEY').describe('Environment variable with its key.'),
  temperature: servedTemperature(0).describe('Temperature of the teacher.'),
  max_tokens: count(300).describe('Max tokens of its answer.'),
  concurrency: count(8).describe('Requests at a time.'),
  attempts: count(3).describe('Tries until its answer can be read.'),
}).describe('Reflections and improvements.');

const server = z
  .strictObject({
    url: z
      .union([text(), z.array(text()).min(1)])
      .describe('Without /v1, such as http://127.0.0.1:8000; or a list of servers that have the same base.'),
    kind: choice('steptrain', 'vllm', 'sglang').describe('The kind of server.'),
    model: optionalText().describe('The base’s name at that server.'),
  })
  .describe('A server that has the base, to sample there instead of in this process.');

const mcts = section({
  simulations: count(16).describe('Expansions of the tree of each problem.'),
  width: count().max(16).default(3).describe('Steps that are sampled at each expansion.'),
  exploration: nonNegative(1).describe('Weight of the exploration term of UCT.'),
}).describe('For `sampler: mcts`.');

const making = z.strictObject({
  positions: countOrAll('all').describe(
    'Steps of a solution at which wrong ones are sampled: all, or so many at random.',
  ),
  max_per_position: count(1).describe('Max samples with different wrong steps at one position.'),
  max_errors_per_solution: count(2).describe('Max samples of one solution.'),
  keep_original: flag(true).describe('Also write each solution itself, without a correction.'),
  after_improvement: choice('continue', 'repeat_true_step').describe(
    'The improvement takes the place of the right step, or the right step is repeated after it.',
  ),
  shape: choice('step', 'instance', 'post_hoc').describe(
    'A sample corrects one step (`step`), follows a whole wrong solution with a whole right one (`instance`), or is a second pass that reads ' +
      'a solution as its problem and writes it anew (`post_hoc`). The last two are baselines.',
  ),
  sampler: choice('steps', 'mcts').describe(
    'Wrong steps after the beginnings of right solutions, or those of a tree search over the model’s own steps (`mcts`, a baseline).',
  ),
  sample,
  validate,
  annotate,
  mcts,
  server: server.optional(),
  chunk: count(64).describe('Solutions that are worked on together; what is done is safe after each chunk.'),
  max_rows: rowsTogether(),
});

export const corrections = z
  .union([z.literal('none'), making])
  .default('none')
  .meta({ expects: '"none" or a section of settings' })
  .describe(
    'How samples with corrections are made of the right solutions of `data`, with wrong steps of the model that is trained: before the training, ' +
      'or into a file by `steptrain data s3c`. `none`: the data has them.',
  );

/** A conflict where the server that samples takes no such temperature. */
export function* servedTemperatures({ server, sample, validate }: CorrectionsConfig): Iterable<Conflict> {
  if (server?.kind !== 'vllm') return;
  for (const [name, { temperature }] of Object.entries({ sample, validate }))
    if (temperature > LARGEST_SERVED_TEMPERATURE)
      yield conflict(
        `corrections.${name}.temperature`,
        `corrections.server.kind "vllm" takes temperatures up to ${LARGEST_SERVED_TEMPERATURE}; lower corrections.${name}.temperature, found ${temperature}`,
      );
}

/** A conflict for each key that others leave without effect. */
export function* unreadCorrections(config: CorrectionsConfig): Iterable<Conflict> {
  const defaults = making.parse({});
  const { sampler, shape, validate: own, annotate: asked } = config;
  const isTree = sampler === 'mcts';
  if (isTree) {
    const why = 'corrections.sampler is mcts';
    yield* withoutEffect('corrections', config, { keys: ['positions', 'max_per_position'], why, defaults });
    yield* withoutEffect('corrections.sample', config.sample, {
      keys: ['n'],
      why,
      defaults: defaults.sample,
    });
  } else
    yield* withoutEffect('corrections.mcts', config.mcts, {
      keys: ['simulations', 'width', 'exploration'],
      why: 'corrections.sampler is steps',
      defaults: defaults.mcts,
    });
  if (isTree || own.by === 'reference')
    yield* withoutEffect('corrections.validate', own, {
      keys: [
        'k',
        'require_true_step_pass',
        ...(isTree ? [] : (['temperature', 'top_p', 'max_new_tokens'] as const)),
      ],
      why: isTree ? 'corrections.sampler is mcts' : 'corrections.validate.by is reference',
      defaults: defaults.validate,
    });
  if (shape !== 'step')
    yield* withoutEffect('corrections', config, {
      keys: ['after_improvement'],
      why: `corrections.shape is ${shape}`,
      defaults,
    });
  if (!asksTeacher(asked))
    yield* withoutEffect('corrections.annotate', asked, {
      keys: ['url', 'model', 'key_env', 'temperature', 'max_tokens', 'concurrency', 'attempts'],
      why:
        asked.teacher === 'auto'
          ? 'corrections.annotate.url names no teacher'
          : `corrections.annotate.teacher is ${asked.teacher}`,
      defaults: defaults.annotate,
    });
}

const asksTeacher = ({ teacher, url }: CorrectionsConfig['annotate']) =>
  teacher === 'remote' || (teacher === 'auto' && url !== undefined);

export type CorrectionsConfig = z.output<typeof making>;
