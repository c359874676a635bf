// The samples of an evaluation, as their journal keeps them.
import { z } from 'zod';
import { objectRows } from '../../data/rows.js';
import { RunError } from '../../run/error.js';
import type { SolvingSample } from './sample.js';

export const SAMPLES = 'samples.jsonl';

const count = z.int().min(0);
/** Fields of a sample in every file that has samples. */
export const drawn = {
  text: z.string(),
  tokens: count,
  finish_reason: z.enum(['stop', 'length', 'error', 'too_long']),
  prompt: z.string(),
};
const sampleSchema = z.strictObject({ problem: count, sample: count, ...drawn });

/** @throws RunError for a line that is no sample, or one a second time */
export async function readSamples(file: string): Promise<SolvingSample[]> {
  const samples: SolvingSample[] = [];
  const seen = new Set<string>();
  for await (const { row, where } of objectRows(file)) {
    const parsed = sampleSchema.safeParse(row);
    const advice = 'delete the line to have the sample drawn again';
    if (!parsed.success) {
      const [issue] = parsed.error.issues;
      const problem = [...(issue?.path ?? []), issue?.message].join(': ');
      throw new RunError(`${where} is no sample of an evaluation (${problem}); ${advice}`);
    }
    const place = `${parsed.data.problem} ${parsed.data.sample}`;
    if (seen.has(place))
      throw new RunError(
        `${where} is sample ${parsed.data.sample} of problem ${parsed.data.problem} a second time; ${advice}`,
      );
    seen.add(place);
    samples.push(parsed.data);
  }
  return samples;
}
