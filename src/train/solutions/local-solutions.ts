/**
 * Whole solutions of problems, sampled while a run trains: from the weights that a role has at that moment, in this process.
 * Policy optimisation rolls out with it, and an iteration of an offline method makes its candidates with it.
 */

import { rowsOf } from '../../config/sampling.js';
import { Generator } from '../../generate/generator.js';
import { roomToGenerate } from '../../generate/room.js';
import type { Sample } from '../../generate/rows/sample-row.js';
import { generateTogether } from '../../generate/together.js';
import { StepTrainError } from '../../native/errors.js';
import { endTokens } from '../../tokenizer/reply-end.js';
import { type RunEnvironment, type SampledModel, sampleEpisodes } from './episodes.js';
import { requestOf, type SampledSolution, type SolutionSource } from './solution-source.js';

export interface LocalSolutionsOptions extends SampledModel {
  /** Solutions are episodes in it. Default: each is one text. */
  readonly environment?: RunEnvironment | undefined;
}

/**
 * Samples in this process. A sample depends on the weights, the seed, the iteration, its prompt and its number alone:
 * prompts may be split into calls, or sampled again after a stop, and give the same tokens. Keys and values are held
 * during a call only.
 *
 * @throws StepTrainError from `sample`: where a prompt leaves no room for a token, or the model gives something that is
 *   not a number
 */
export function localSolutions(options: LocalSolutionsOptions): SolutionSource {
  const { decoder, role, tokenizer, sampling, cacheBytes } = options;
  return {
    async sample(prompts, round) {
      const { signal, skip } = round;
      if (signal?.aborted) return undefined;
      if (prompts.length === 0) return [];
      if (options.environment) return sampleEpisodes(options, options.environment, prompts, round);
      const ids = prompts.map((prompt) => prompt.ids);
      const request = {
        ...requestOf(prompts, round, options, solutionOf),
        stop: sampling.stop,
        eosTokenIds: endTokens(decoder.config, tokenizer),
        tokenizer,
      };
      const limits = { maxRows: rowsOf(sampling.max_rows), cacheBytes };
      using generator = new Generator(decoder, roomToGenerate(decoder, ids, { ...request, ...limits }));
      const samples = await generateTogether(generator, ids, { ...request, role });
      if (signal?.aborted) return undefined;
      return samples.map((list, prompt) =>
        list.map((sample, i) => (skip?.(prompt, i) ? SKIPPED : solutionOf(sample))),
      );
    },
  };
}

/** Placeholder of a sample that was not asked for. */
const SKIPPED: SampledSolution = { tokens: [], logprobs: [], text: '', finishReason: 'length' };

function solutionOf({ tokens, temperedLogprobs, text = '', finishReason }: Sample): SampledSolution {
  if (finishReason === 'stop' || finishReason === 'length')
    return { tokens, logprobs: Array.from(temperedLogprobs), text, finishReason };
  throw new StepTrainError(
    'E_NONFINITE',
    'sampling: a logit of the policy is NaN or infinite, so there is no token to draw; lower the learning rate ' +
      'and resume from an earlier checkpoint',
  );
}
