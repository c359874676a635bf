/** Completions of solutions after some of their steps. Shared prefixes are computed once. */
import type { Model } from '../../api/model.js';
import { Generator } from '../../generate/generator.js';
import { roomToGenerate } from '../../generate/room.js';
import type { SolvingPrompt } from '../../generate/solving-prompt.js';
import { generateTogether } from '../../generate/together.js';
import { endTokens } from '../../tokenizer/reply-end.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { SolvingSamplingOptions } from '../solving/settings.js';

export interface CompletionOptions extends Omit<SolvingSamplingOptions, 'n'> {
  /** Completions of each prefix. */
  readonly k: number;
  readonly prompt: SolvingPrompt;
  /** Between steps. Default a line break. */
  readonly separator?: string;
  /** Max completions at a time. Default 64 on a CPU, 256 on a GPU. */
  readonly maxRows?: number;
  readonly signal?: AbortSignal;
}

export interface Prefix {
  readonly problem: string;
  /** Steps of the solution, with the text between them, up to where it goes on. */
  readonly text: string;
  /** Key of the random numbers. */
  readonly key: number;
}

export interface Completion {
  readonly text: string;
  /** Whether it ended by itself. */
  readonly ended: boolean;
}

/** Completions of each prefix, none for one that fills the model's context; undefined if the signal stopped it. */
export async function prefixCompletions(
  { decoder, adapter }: Pick<Model, 'decoder' | 'adapter'>,
  tokenizer: Tokenizer,
  prefixes: readonly Prefix[],
  { k, prompt, maxRows, signal, separator: _, ...sampling }: CompletionOptions,
): Promise<Completion[][] | undefined> {
  const eosTokenIds = sampling.eosTokenIds ?? endTokens(decoder.config, tokenizer);
  const options = { ...sampling, n: k, tokenizer, eosTokenIds };
  const opening = prompt.chat || /\s$/.test(prompt.template) ? '' : ' ';
  const ids = prefixes.map(({ problem, text }) => [
    ...prompt.tokens(problem),
    ...(text === '' ? [] : tokenizer.encode(opening + text, { continuation: true })),
  ]);
  const fits = ids.map(({ length }) => length < decoder.config.maxPositions);
  const fed = ids.filter((_, i) => fits[i]);
  if (fed.length === 0) return prefixes.map(() => []);
  using generator = new Generator(decoder, roomToGenerate(decoder, fed, { ...options, maxRows }));
  const samples = await generateTogether(generator, fed, {
    ...options,
    promptIds: prefixes.flatMap(({ key }, i) => (fits[i] ? [key % 2 ** 32] : [])),
    role: adapter ? { adapter } : {},
    ...(signal ? { signal } : {}),
  });
  if (signal?.aborted) return undefined;
  let next = 0;
  return fits.map((fit) =>
    (fit ? (samples[next++] ?? []) : []).map(({ text = '', finishReason }) => ({
      text,
      ended: finishReason === 'stop',
    })),
  );
}
