/** A verdict model as a scorer: the probability of the word for a right step, after each step. */
import { inMemory } from '../../data/dataset.js';
import { verdictTokenizer } from '../../data/verdict.js';
import type { Decoder } from '../../models/decoder.js';
import { tokensAtOnce } from '../../sequences/batching.js';
import { verdictSequence } from '../../sequences/sequence.js';
import { asRecord, type ReadingOptions, readable } from '../readable.js';
import { type Scorer, scorer } from '../scorer.js';
import type { LikelihoodWeights } from '../settings.js';
import {
  type StepLikelihoods,
  stepCalculations,
  stepLikelihoods,
  withLikelihood,
  withUnread,
} from './likelihood.js';
import { judgeVerdicts } from './verdicts.js';

export interface VerdictScorerOptions extends ReadingOptions {
  /** `greedy`: the word that the model would write, else none. A number: the least probability of a right step. Default 0.5. */
  readonly threshold?: 'greedy' | number;
  /** Weights of the model's card, to weigh words with the base's likelihood of the steps. Default: the words alone. */
  readonly likelihood?: LikelihoodWeights | undefined;
  /** Reasons drawn for each verdict, of a judge that writes them. Default: the most likely one. */
  readonly votes?: number | undefined;
}

/** @throws DataError for a prompt that the tokenizer cannot express */
export function verdictScorer(
  decoder: Decoder,
  {
    name = 'verdict',
    tokenizer,
    prompt = {},
    role = {},
    threshold = 0.5,
    maxLength = decoder.config.maxPositions,
    skipUnreadable = false,
    likelihood,
    votes,
  }: VerdictScorerOptions,
): Scorer {
  const verdicts = verdictTokenizer(prompt, tokenizer);
  return scorer({
    name,
    threshold: threshold === 'greedy' ? 0.5 : threshold,
    readsTurns: true,
    byCalculations: likelihood?.of === 'calculations' && likelihood.verdict === 0,
    async score(solutions, { signal } = {}) {
      const places = solutions.flatMap((asked, i) => {
        if (asked.steps.length === 0) return [];
        // Only labelled steps are judged; the label itself changes no verdict.
        const record = asRecord(asked, 1);
        const solution = readable(() => verdicts.solution(record, { maxLength }), skipUnreadable);
        return solution ? [{ i, sequence: verdictSequence(solution, verdicts, i) }] : [];
      });
      const sequences = inMemory(places.map(({ sequence }) => sequence));
      const options = {
        microBatchTokens: tokensAtOnce(decoder, signal),
        ...(signal ? { signal } : {}),
      };
      const asked = { threshold, votes, tokenizer: verdicts, ...options };
      const byWords = (await judgeVerdicts(decoder, role, sequences, asked)).map((verdict) => ({
        ...verdict,
        solution: places[verdict.solution]?.i as number,
      }));
      const isComputed = likelihood?.of === 'calculations';
      const evidence = !likelihood
        ? undefined
        : isComputed
          ? stepCalculations(solutions.map(({ steps }) => ({ steps: steps.map((text) => ({ text })) })))
          : bySolution(solutions.length, places, await stepLikelihoods(decoder, sequences, options));
      if (signal?.aborted) return undefined;
      const judged =
        likelihood && evidence
          ? withLikelihood(
              withUnread(byWords, evidence, () => 1),
              evidence,
              likelihood,
              threshold,
            )
          : byWords;
      const found = solutions.map(({ steps }, i) => ({
        scores: steps.map(() => null) as (number | null)[],
        verdicts: steps.map(() => null) as (1 | 0 | null)[],
        ...(isComputed
          ? { checked: steps.map((_, step) => evidence?.[i]?.get(step)?.checked === true) }
          : {}),
        ...(isComputed ? { unread: steps.map(() => false) } : {}),
        ...(verdicts.template.rationaleTokens > 0
          ? { reasons: steps.map(() => null) as (string | null)[] }
          : {}),
        tokens: 0,
      }));
      for (const { i, sequence } of places) if (found[i]) found[i].tokens = sequence.ids.length;
      for (const { solution, step, probability, verdict, reason, unread = false } of judged) {
        const of = found[solution];
        if (!of) continue;
        of.scores[step] = probability;
        of.verdicts[step] = verdict ?? null;
        if (of.unread) of.unread[step] = unread;
        if (of.reasons) of.reasons[step] = reason ?? null;
      }
      return found;
    },
  });
}

/** Likelihoods by solution; empty for solutions without a sequence. */
function bySolution(
  count: number,
  places: readonly { readonly i: number }[],
  found: StepLikelihoods | undefined,
): StepLikelihoods {
  const known = new Map(places.map(({ i }, at) => [i, found?.[at]]));
  return Array.from({ length: count }, (_, i) => known.get(i) ?? new Map());
}
