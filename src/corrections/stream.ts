/** Samples of a stream of solutions, in chunks: memory does not grow with their number. */
import type { StepRecord } from '../records/record.js';
import type { SampleFile } from './file.js';
import { type MakingTools, makeSamples } from './make.js';
import { makeTreeSamples } from './mcts.js';
import type { SourceSolution } from './solution.js';
import type { Tally } from './tally.js';

/** The samples of a chunk by the configured sampler; undefined if the signal stopped it. */
export function samplesOf(
  solutions: readonly SourceSolution[],
  tools: MakingTools,
  tally: Tally,
  signal?: AbortSignal,
): Promise<readonly StepRecord[] | undefined> {
  const make = tools.settings.sampler === 'mcts' ? makeTreeSamples : makeSamples;
  return make(solutions, tools, tally, signal);
}

/**
 * Appends the samples of all solutions that the file does not have yet.
 *
 * @returns whether it came to the end; false if the signal stopped it
 */
export async function makeIntoFile(
  solutions: AsyncIterable<SourceSolution>,
  file: SampleFile,
  tools: MakingTools,
  {
    signal,
    onProgress,
  }: { readonly signal?: AbortSignal; readonly onProgress?: (solutions: number) => void } = {},
): Promise<boolean> {
  const { chunk: size } = tools.settings;
  let skip = file.solutions;
  let chunk: SourceSolution[] = [];
  const finish = async () => {
    const before = tools.sampler.tokens;
    const made = await samplesOf(chunk, tools, file.tally, signal);
    if (!made) return false;
    await file.append(made, chunk.length, tools.sampler.tokens - before);
    onProgress?.(file.solutions);
    chunk = [];
    return true;
  };
  for await (const solution of solutions) {
    if (signal?.aborted) return false;
    if (skip-- > 0) continue;
    chunk.push(solution);
    if (chunk.length === size && !(await finish())) return false;
  }
  // The last chunk, or only the counts since the one before.
  return finish();
}
