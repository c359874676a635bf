/** A published reward model of steps as a scorer: the probability that each step is right. */
import type { Decoder } from '../../models/decoder.js';
import { tokensAtOnce } from '../../sequences/batching.js';
import { type ReadingOptions, readable } from '../readable.js';
import type { RewardItem, ScoredRow } from '../reward-model/items.js';
import { type RewardNetwork, scoreItems } from '../reward-model/network.js';
import { type Scorer, type Solution, scorer, scoresByStep } from '../scorer.js';
import { probability } from '../verdict/judged.js';
import { LAYOUTS, type Layout, type PublishedLayout } from './layouts.js';

export interface PublishedScorerOptions extends Omit<ReadingOptions, 'prompt'> {
  readonly name: string;
  readonly layout: PublishedLayout;
  /** Text that ends every step, for layouts that leave it open. Default a line break. */
  readonly separator?: string | undefined;
  /** Least probability of a right step. */
  readonly threshold: number;
  readonly maxLength: number;
  readonly skipUnreadable: boolean;
}

/** Steps beyond `maxLength` tokens, and those of a solution that holds the model's own mark, have no score. */
export function publishedScorer(
  decoder: Decoder,
  {
    name,
    layout: named,
    separator,
    tokenizer,
    role = {},
    threshold,
    maxLength,
    skipUnreadable,
  }: PublishedScorerOptions,
): Scorer {
  const layout = LAYOUTS[named];
  const network: RewardNetwork = {
    decoder,
    role,
    head: layout.head,
    neutral_score: 'positive',
    words: layout.words?.(tokenizer) ?? [0, 0],
  };
  return scorer({
    name,
    threshold,
    async score(solutions, { signal } = {}) {
      const items = solutions.map(
        (solution): RewardItem =>
          readable(
            () => itemOf(layout.read(tokenizer, solution, separator), solution, maxLength),
            skipUnreadable,
          ) ?? NOTHING,
      );
      const found = await scoreItems(network, items, {
        microBatchTokens: tokensAtOnce(decoder, signal),
        signal,
      });
      return found?.map((list, i) => {
        const { rows, tokens } = items[i] as RewardItem;
        const scores = rows.map(({ step }, r): [number, number] => [step, probability(list[r] as number)]);
        return { tokens, scores: scoresByStep(solutions[i] as Solution, scores) };
      });
    },
  });
}

const NOTHING: RewardItem = { sequences: [], rows: [], tokens: 0 };

function itemOf(
  { ids, rows }: ReturnType<Layout['read']>,
  solution: Solution,
  maxLength: number,
): RewardItem {
  if (rows.length !== solution.steps.length) return NOTHING;
  const read = rows.filter((row) => row < maxLength);
  if (read.length === 0) return NOTHING;
  const own = ids.slice(0, (read.at(-1) as number) + 1);
  return {
    sequences: [{ ids: own, positions: own.map((_, i) => i), branch: undefined, rowId: 0 }],
    rows: read.map((row, step): ScoredRow => {
      return { sequence: 0, row, what: 'step', step, label: null, target: undefined, neutral: false };
    }),
    tokens: own.length,
  };
}
