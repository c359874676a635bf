/** Samples drawn by all processes of a job: each draws those of its prompts, and all get all of them. */
import { exchange } from '../cluster/exchange.js';
import { processesOf } from '../runtime/processes.js';
import type { GenerateOptions, Generator } from './generator.js';
import type { Sample } from './rows/sample-row.js';

/**
 * The samples of `Generator.generate`, drawn by all processes together. A sample depends on its prompt and number
 * alone, so it does not matter who draws it. Skipped samples are meaningless; all are if the signal is aborted.
 */
export async function generateTogether(
  generator: Generator,
  prompts: readonly ArrayLike<number>[],
  options: GenerateOptions,
): Promise<readonly (readonly Sample[])[]> {
  const processes = processesOf(generator.decoder.device);
  if (!processes) return generator.generate(prompts, options).samples;
  const { cluster, settle, add } = processes;
  const { rank, size } = cluster;
  const { signal, skip, onSample } = options;
  const isOwn = (prompt: number) => prompt % size === rank;
  const drawn = prompts.some((_, prompt) => isOwn(prompt))
    ? await generator.generate(prompts, {
        ...options,
        skip: (prompt, sample) => !isOwn(prompt) || skip?.(prompt, sample) === true,
      }).samples
    : [];
  const own = drawn.filter((_, prompt) => isOwn(prompt));
  add(own.flat().reduce((sum, sample) => sum + sample.tokens.length, 0));
  const all = await exchange(cluster, own);
  if (signal) await settle();
  return prompts.map((_, prompt) => {
    const samples = all[prompt % size]?.[Math.floor(prompt / size)] as readonly Sample[];
    if (!isOwn(prompt))
      samples.forEach((sample, i) => {
        const ended = sample.finishReason === 'stop' || sample.finishReason === 'length';
        if (ended && !skip?.(prompt, i)) onSample?.(prompt, i, sample);
      });
    return samples;
  });
}
