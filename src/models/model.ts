/** The embedding API: a model that scores token sequences. */

import { StepTrainError } from '../native/errors.js';
import { headLogprobs } from '../ops/head.js';
import type { Device } from '../runtime/device.js';
import { type Adapter, loadAdapter } from './adapter.js';
import { raggedBatch } from './batch.js';
import type { Decoder, Role } from './decoder.js';
import { loadDecoder } from './load.js';

export interface LoadModelOptions {
  /** Dtype of weights and activations; accumulation is f32 either way. */
  readonly dtype: 'f32' | 'bf16';
  /** Directory of a PEFT adapter. */
  readonly adapter?: string;
}

export interface SequenceScore {
  /** log p(token t+1 | tokens 0…t), natural logarithm; one fewer than tokens. */
  readonly logprobs: Float32Array;
  /** Entropy in nats of the next-token distribution after each token. */
  readonly entropy: Float32Array;
}

/** Sequences are scored together up to this many tokens at a time. */
const TOKENS_PER_BATCH = 4096;

/** Loads a Hugging Face directory, and a PEFT adapter on top where one is given. */
export async function loadModel(
  device: Device,
  directory: string,
  options: LoadModelOptions,
): Promise<Model> {
  const decoder = await loadDecoder(device, directory, { dtype: options.dtype });
  if (options.adapter === undefined) return new Model(decoder);
  try {
    return new Model(decoder, loadAdapter(device, decoder.config, options.adapter));
  } catch (error) {
    decoder.dispose();
    throw error;
  }
}

export class Model {
  constructor(
    readonly decoder: Decoder,
    readonly adapter?: Adapter,
  ) {}

  /** Log-probabilities and entropies of each sequence. No [tokens, vocabulary] tensor is ever held. */
  async score(sequences: readonly (readonly number[])[]): Promise<SequenceScore[]> {
    sequences.forEach((sequence, i) => {
      if (sequence.length === 0) {
        throw new StepTrainError('E_RANGE', `score: sequence ${i} is empty; give at least one token`);
      }
    });
    const scores: SequenceScore[] = [];
    for (let begin = 0; begin < sequences.length; ) {
      let end = begin + 1;
      let tokens = (sequences[begin] as readonly number[]).length;
      while (
        end < sequences.length &&
        tokens + (sequences[end] as readonly number[]).length <= TOKENS_PER_BATCH
      ) {
        tokens += (sequences[end++] as readonly number[]).length;
      }
      scores.push(...(await this.scoreBatch(sequences.slice(begin, end))));
      begin = end;
    }
    return scores;
  }

  private async scoreBatch(sequences: readonly (readonly number[])[]): Promise<SequenceScore[]> {
    const { decoder } = this;
    const { device } = decoder;
    const role: Role = { adapter: this.adapter };
    const batch = raggedBatch(
      device,
      sequences.map((ids) => ({ ids })),
      decoder.config,
    );
    // The last token of a sequence has no target; its row is there for the entropy.
    const targets = Int32Array.from(sequences.flatMap((ids) => [...ids.slice(1), 0]));
    const { logprobs, entropy } = device.scope(() => {
      const hidden = decoder.forward(batch, role);
      return headLogprobs(hidden, decoder.head(role), device.tensor(targets));
    }, 'score');
    try {
      const [lp, h] = await Promise.all([logprobs.readFloats(), entropy.readFloats()]);
      return sequences.map((ids, i) => {
        const begin = batch.offsets[i] as number;
        return {
          logprobs: lp.slice(begin, begin + ids.length - 1),
          entropy: h.slice(begin, begin + ids.length),
        };
      });
    } finally {
      logprobs.dispose();
      entropy.dispose();
      batch.dispose();
    }
  }

  dispose(): void {
    this.adapter?.dispose();
    this.decoder.dispose();
  }
}
