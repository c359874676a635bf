/** Solutions sampled by a server that holds the same model: before each round it is given the policy as it is then. */
import type { SamplingKeys } from '../../config/sampling.js';
import { detokenize } from '../../generate/rows/detokenize.js';
import type { SampleSource, SourceSample } from '../../generate/sample-source.js';
import type { Adapter } from '../../models/adapter.js';
import type { Decoder } from '../../models/decoder.js';
import { StepTrainError } from '../../native/errors.js';
import { RemoteError } from '../../remote/errors.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { SolutionPrompt } from './prompts.js';
import { requestOf, type SampledSolution, type SolutionSource } from './solution-source.js';

export interface RemoteSolutionsOptions {
  readonly source: SampleSource;
  /** The trained adapter, or undefined for the decoder's own weights. */
  readonly adapter: Adapter | undefined;
  readonly decoder: Decoder;
  readonly tokenizer: Tokenizer;
  /** Settings at temperature 1: servers give the log-probs of no other. */
  readonly sampling: SamplingKeys;
  readonly seed: number;
  readonly eosTokenIds: readonly number[];
  /** Advice on what to do once the server answers again; ends the sentence of a failure. */
  readonly goOn: string;
}

/**
 * The server's samples as a source of rollouts. From `steptrain serve` they are those of `localSolutions`, bit for bit on the
 * CPU; from others they differ by their kernels' rounding, and the update takes log-probs of its own and corrects for the difference.
 *
 * @throws RemoteError from `sample`, in one sentence, where the server does not answer after all tries
 */
export function remoteSolutions(options: RemoteSolutionsOptions): SolutionSource {
  const { source, adapter, decoder, sampling, eosTokenIds, goOn } = options;
  /** The round in which drawing ahead began, by the round that is drawn ahead. */
  const begun = new Map<number, number>();
  return {
    async sample(prompts, round) {
      if (round.signal?.aborted) return undefined;
      if (prompts.length === 0) return [];
      try {
        const { iteration, n, ahead } = round;
        const since = begun.get(iteration);
        const age = ahead ? { staleness: since === undefined ? 0 : iteration - since } : {};
        const given = (ended: SourceSample) => ({ ...solutionOf(ended, options), ...age });
        const stop = [...sampling.stop, ...eosTokenIds];
        if (!adapter) await source.publishWeights?.(decoder);
        else if (ahead && source.begin) {
          for (const next of [{ iteration, prompts }, ...ahead]) {
            if (begun.has(next.iteration)) continue;
            begun.set(next.iteration, iteration);
            const own = { iteration: next.iteration, ...(n === undefined ? {} : { n }) };
            const request = { ...requestOf(next.prompts, own, options, given), stop };
            await source.begin(adapter, idsOf(next.prompts), request);
          }
          begun.delete(iteration);
        } else await source.publish(adapter, iteration);
        const request = { ...requestOf(prompts, round, options, given), stop };
        const drawn = await source.sample(idsOf(prompts), request);
        // Whole prompts of those that are skipped were never asked.
        return drawn?.map((samples) => Array.from(samples, (sample) => sample && given(sample)));
      } catch (error) {
        if (!(error instanceof RemoteError)) throw error;
        throw new RemoteError(`rollout.server: ${error.message}; ${goOn}`, { cause: error });
      }
    },
    dispose: () => void source.close(),
  };
}

const idsOf = (prompts: readonly SolutionPrompt[]) => prompts.map(({ ids }) => ids);

function solutionOf(
  { tokens, logprobs, finishReason, server }: SourceSample,
  { tokenizer, sampling }: RemoteSolutionsOptions,
): SampledSolution {
  if (finishReason !== 'stop' && finishReason !== 'length')
    throw new StepTrainError(
      'E_NONFINITE',
      `rollout.server: a sample ended by "${finishReason}", so there is no solution; lower the learning rate and resume from an ` +
        'earlier checkpoint',
    );
  return {
    tokens,
    logprobs: Array.from(logprobs),
    text: detokenize(tokenizer, tokens, { stop: sampling.stop }),
    finishReason,
    ...(server === undefined ? {} : { server }),
  };
}
