/** A model that reasons about a solution and then says of each step whether it is right, as a scorer: the share of its votes. */
import { Generator } from '../../generate/generator.js';
import { roomToGenerate } from '../../generate/room.js';
import type { Decoder, Role } from '../../models/decoder.js';
import { textHash } from '../../random/text-hash.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import { isUnreadable } from '../readable.js';
import { type Scorer, scorer } from '../scorer.js';
import { type Ask, type GenerativeLayout, type PatternSettings, type Vote, votesBy } from './layouts.js';

export interface GenerativeScorerOptions {
  readonly name: string;
  readonly layout: GenerativeLayout;
  readonly pattern?: PatternSettings | undefined;
  readonly tokenizer: Tokenizer;
  readonly role: Pick<Role, 'adapter'>;
  /** Answers drawn for each solution (of GenPRM, each step). One is the likeliest text, several are drawn. */
  readonly votes: number;
  readonly temperature: number;
  readonly topP: number;
  /** Max tokens of an answer. */
  readonly maxNewTokens: number;
  readonly maxLength: number;
  /** Least share of votes for a right step. */
  readonly threshold: number;
  readonly skipUnreadable: boolean;
}

/** Counts over the life of a scorer. */
interface Count {
  answers: number;
  written: number;
  verdicts: number;
  unparsed: number;
}

/**
 * The share of votes for "right" among those that can be read: Maj@k, where half and more is right. A vote need not say anything of
 * steps after the first that it calls wrong; where it says nothing of an earlier one, that counts as `unparsed`. A step of which no
 * vote can be read has no score.
 */
export function generativeScorer(decoder: Decoder, options: GenerativeScorerOptions): Scorer {
  const { name, layout, tokenizer, votes, threshold, skipUnreadable } = options;
  // A tokenizer without a chat template is refused here, before any solution is.
  tokenizer.applyChatTemplate([{ role: 'user', content: '' }], { addGenerationPrompt: true });
  const askVotes = votesBy(layout, tokenizer, options.pattern);
  const count: Count = { answers: 0, written: 0, verdicts: 0, unparsed: 0 };
  return scorer({
    name,
    threshold,
    report: () => ({ ...count }),
    async score(solutions, { signal } = {}) {
      const room = roomToGenerate(decoder, [{ length: options.maxLength - 1 }], {
        n: votes * Math.max(1, solutions.length),
        maxNewTokens: 1,
      });
      using generator = new Generator(decoder, room);
      const found = await Promise.all(
        solutions.map(async (solution) => {
          const tokens = { read: 0 };
          const asked = asker(generator, options, { count, tokens, signal });
          const own =
            solution.steps.length === 0
              ? []
              : await askVotes(solution, asked, votes).catch((error: unknown): readonly Vote[] => {
                  if (skipUnreadable && isUnreadable(error)) return [];
                  throw error;
                });
          for (const vote of own) tally(vote, count);
          const scores = solution.steps.map((_, step) => shareOf(own, step));
          return { scores, tokens: tokens.read };
        }),
      );
      return signal?.aborted ? undefined : found;
    },
  });
}

/** Answers from the generator. A draw depends on its own prompt alone, never on what else is judged. */
function asker(
  generator: Generator,
  { tokenizer, role, votes, temperature, topP, maxNewTokens, maxLength }: GenerativeScorerOptions,
  {
    count,
    tokens,
    signal,
  }: {
    readonly count: Count;
    readonly tokens: { read: number };
    readonly signal: AbortSignal | undefined;
  },
): Ask {
  return async (prompt, { n, stop, most = maxNewTokens }) => {
    const ids = tokenizer.encode(prompt, { addSpecialTokens: false });
    const left = Math.min(most, maxLength - ids.length);
    if (left < 1 || signal?.aborted) return [];
    const [samples = []] = await generator.generate([ids], {
      ...{ n, role, signal, tokenizer, stop, maxNewTokens: left },
      ...(votes === 1 ? { temperature: 0 } : { temperature, topP }),
      promptIds: [textHash(prompt)],
    }).samples;
    count.answers += samples.length;
    tokens.read += ids.length;
    return samples.map(({ text = '', tokens: written, stop: ended }) => {
      count.written += written.length;
      tokens.read += written.length;
      return typeof ended === 'string' ? text + ended : text;
    });
  };
}

function shareOf(votes: readonly Vote[], step: number): number | null {
  const read = votes.flatMap((vote) => vote[step] ?? []);
  return read.length === 0 ? null : read.filter((verdict) => verdict === 1).length / read.length;
}

function tally(vote: Vote, count: Count): void {
  const wrong = vote.indexOf(0);
  vote.forEach((verdict, step) => {
    if (verdict !== null) count.verdicts++;
    else if (wrong < 0 || step < wrong) count.unparsed++;
  });
}
