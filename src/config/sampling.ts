// The config keys of methods that sample whole solutions.
import { z } from 'zod';
import { count, countOrOff, fraction, positiveShare, samplingTemperature, text } from './fields.js';

interface SamplingDefaults {
  readonly num_generations: number;
  readonly temperature?: number;
  readonly top_p?: number;
}

/** Number of samples that run together, here or on a server. */
export const rowsTogether = () =>
  z
    .union([z.literal('auto'), count()])
    .default('auto')
    .describe(
      'Max samples that run together, also requests at a time of a server; `auto`: 64 on a CPU and of a server, 256 on a GPU, fewer where ' +
        'their keys and values find no room. Changes memory and speed, never a sample.',
    );

/** undefined: as `roomToGenerate` chooses. */
export const rowsOf = (rows: number | 'auto') => (rows === 'auto' ? undefined : rows);

export const concurrencyOf = (rows: number | 'auto') => (rows === 'auto' ? 64 : rows);

/** Settings of sampled solutions; see `localSolutions`. */
export function sampling({ num_generations, temperature = 1, top_p = 1 }: SamplingDefaults) {
  return {
    num_generations: count(num_generations).describe('Solutions sampled of each problem.'),
    max_new_tokens: count(256).describe(
      'Max tokens of a solution; what is cut off there counts as truncated.',
    ),
    temperature: samplingTemperature(temperature).describe(
      'Temperature of sampling and of the log-probs that are compared.',
    ),
    top_p: positiveShare(top_p).describe(
      'Draw from the most likely tokens that together reach this probability; 1: from all.',
    ),
    top_k: countOrOff(0).describe('Draw from this many of the most likely tokens; 0: from all.'),
    min_p: fraction(0).describe(
      'Draw from tokens with at least this share of the largest probability; 0: from all.',
    ),
    stop: z.array(text()).default([]).describe('Texts that end a solution, beside the end-of-text token.'),
    max_rows: rowsTogether(),
  };
}

export type SamplingKeys = z.output<z.ZodObject<ReturnType<typeof sampling>>>;
