/**
 * Sources of a training run's samples: the model in its own process, or a server that holds the same base. Samples are
 * the drawn tokens, never text that is tokenized again.
 */
import type { Adapter } from '../models/adapter.js';
import type { Decoder } from '../models/decoder.js';
import type { Generator } from './generator.js';
import type { SamplingOptions } from './options.js';
import type { FinishReason, Sample } from './rows/sample-row.js';
import { generateTogether } from './together.js';

/** Options of sampling; a source that cannot follow one refuses it. */
export type SourceOptions = Pick<
  SamplingOptions,
  | 'n'
  | 'maxNewTokens'
  | 'minTokens'
  | 'temperature'
  | 'topK'
  | 'topP'
  | 'minP'
  | 'ignoreEos'
  | 'seed'
  | 'iteration'
  | 'promptIds'
> & {
  /** Token ids and texts that end a sample. */
  readonly stop?: readonly (number | string)[];
  readonly signal?: AbortSignal;
  /** Tells which samples the caller has already: they need not be drawn, and the returned ones are meaningless. */
  readonly skip?: (prompt: number, sample: number) => boolean;
  /** Called with each sample when it has ended, before all of them are returned. */
  readonly onSample?: (prompt: number, sample: number, ended: SourceSample) => void;
};

/** One sample. Log-probabilities in nats. */
export interface SourceSample {
  /** All drawn tokens, including the one that ended the sample. */
  readonly tokens: readonly number[];
  /**
   * log p of each token under the model that drew it, at temperature 1 unless the source says otherwise. Before a policy is trained on them
   * they are computed again by the training forward; their difference tells how far a server is from the trainer.
   */
  readonly logprobs: Float32Array;
  readonly finishReason: Exclude<FinishReason, 'abort'>;
  /** The token or text that ended the sample, if the reason is `stop` and the source knows it. */
  readonly stop?: number | string;
  /** Number of the server that drew it, from 1. */
  readonly server?: number;
}

export interface SampleSource {
  /**
   * `n` samples for each prompt, none lost and none twice; undefined if the signal stopped it, as in a `RolloutSource`.
   */
  sample(
    prompts: readonly (readonly number[])[],
    options: SourceOptions,
  ): Promise<readonly (readonly SourceSample[])[] | undefined>;
  /**
   * Lets all later samples come from the adapter as it is now. Call it after each round of updates.
   *
   * @param iteration numbers the round
   */
  publish(adapter: Adapter, iteration: number): Promise<void>;
  /** The same for a model without an adapter: all later samples come from its weights as they are now. */
  publishWeights?(decoder: Decoder): Promise<void>;
  /**
   * Begins to draw the samples that `sample` of the same iteration will return, from the adapter as it is now; resolves once the adapter may change.
   * Rounds are drawn in the order of these calls, and a later one publishes anew.
   */
  begin?(
    adapter: Adapter,
    prompts: readonly (readonly number[])[],
    options: SourceOptions & { readonly iteration: number },
  ): Promise<void>;
  /** Removes the published adapters or weights. */
  close(): Promise<void>;
}

/** The generator of this process as a source. It samples with the adapter's weights themselves: nothing is ever copied. */
export function generatorSource(
  generator: Generator,
  options: Pick<SamplingOptions, 'eosTokenIds' | 'tokenizer'> & { readonly adapter?: Adapter } = {},
): SampleSource {
  const { adapter: first, ...own } = options;
  let adapter = first;
  return {
    async sample(prompts, { signal, onSample, ...sampling }) {
      const request = {
        ...own,
        ...sampling,
        role: { adapter },
        signal,
        onSample:
          onSample &&
          ((prompt: number, i: number, ended: Sample) => onSample(prompt, i, sourceSample(ended))),
      };
      const samples = await generateTogether(generator, prompts, request);
      if (signal?.aborted) return undefined;
      return samples.map((list) => list.map(sourceSample));
    },
    async publish(published) {
      adapter = published;
    },
    async close() {},
  };
}

function sourceSample({ tokens, logprobs, finishReason, stop }: Sample): SourceSample {
  return {
    tokens,
    logprobs,
    finishReason: finishReason as SourceSample['finishReason'],
    ...(stop === undefined ? {} : { stop }),
  };
}
