/** A verdict model as a scorer of steps: its words, the base's likelihood of the steps, and both weighed together. */
import { inMemory } from '../../data/dataset.js';
import { verdictTokenizer } from '../../data/verdict.js';
import type { Decoder } from '../../models/decoder.js';
import { tokensAtOnce } from '../../sequences/batching.js';
import { verdictSequence } from '../../sequences/sequence.js';
import { calculationScorer } from '../calculations.js';
import { asRecord, type ReadingOptions, readable } from '../readable.js';
import { type Scorer, type Solution, type SolutionScores, scorer, scoresByStep } from '../scorer.js';
import type { LikelihoodWeights } from '../settings.js';
import { weighted } from '../weighted.js';
import { stepLikelihoods } from './likelihood.js';
import { judgeVerdicts } from './verdicts.js';

export interface VerdictScorerOptions extends ReadingOptions {
  /** `greedy`: the word that the model would write, else none. A number: the least probability of a right step. Default 0.5. */
  readonly threshold?: 'greedy' | number;
  /** Weights of the model's card, to weigh words with other evidence. Default: the words alone. */
  readonly likelihood?: LikelihoodWeights | undefined;
  /** Reasons drawn for each verdict, of a judge that writes them. Default: the most likely one. */
  readonly votes?: number | undefined;
}

/** @throws DataError for a prompt that the tokenizer cannot express */
export function verdictScorer(decoder: Decoder, options: VerdictScorerOptions): Scorer {
  const { threshold = 0.5, likelihood: weights } = options;
  const least = threshold === 'greedy' ? 0.5 : threshold;
  if (!weights) return { ...wordScorer(decoder, options, 'probability'), threshold: least };
  const other = weights.of === 'calculations' ? calculationScorer() : likelihoodScorer(decoder, options);
  return weighted(wordScorer(decoder, options, 'log_odds'), other, { weights, threshold: least });
}

/** The probability of the word for a right step, or its log-odds, after each step. */
function wordScorer(
  decoder: Decoder,
  options: VerdictScorerOptions,
  scale: 'probability' | 'log_odds',
): Scorer {
  const { name = 'verdict', role = {}, threshold = 0.5, votes } = options;
  const { tokenizer, sequencesOf } = reader(decoder, options);
  return scorer({
    name,
    scale,
    readsTurns: true,
    async score(solutions, { signal } = {}) {
      const places = sequencesOf(solutions);
      const judged = await judgeVerdicts(decoder, role, inMemory(places.map(({ sequence }) => sequence)), {
        ...{ threshold, votes, tokenizer, microBatchTokens: tokensAtOnce(decoder, signal) },
        ...(signal ? { signal } : {}),
      });
      if (signal?.aborted) return undefined;
      const found = solutions.map(({ steps }) => ({
        scores: steps.map(() => null) as (number | null)[],
        verdicts: steps.map(() => null) as (1 | 0 | null)[],
        ...(tokenizer.template.rationaleTokens > 0
          ? { reasons: steps.map(() => null) as (string | null)[] }
          : {}),
        tokens: 0,
      }));
      for (const { i, sequence } of places) if (found[i]) found[i].tokens = sequence.ids.length;
      for (const { solution, step, probability, logPositive, logNegative, ...judgement } of judged) {
        const { verdict, reason, unreadable } = judgement;
        const of = found[places[solution]?.i as number];
        if (!of) continue;
        // A reason that does not end has no word after it, and so no probability.
        const read = unreadable === true && scale === 'probability' ? null : probability;
        of.scores[step] = scale === 'probability' ? read : logPositive - logNegative;
        of.verdicts[step] = verdict ?? null;
        if (of.reasons) of.reasons[step] = reason ?? null;
      }
      return found;
    },
  });
}

/** The log-probability of the least likely token up to the end of each step, under the base alone. */
function likelihoodScorer(decoder: Decoder, options: ReadingOptions): Scorer {
  const { sequencesOf } = reader(decoder, options);
  return scorer({
    name: 'likelihood',
    scale: 'reward',
    readsTurns: true,
    async score(solutions, { signal } = {}) {
      const places = sequencesOf(solutions);
      const found = await stepLikelihoods(decoder, inMemory(places.map(({ sequence }) => sequence)), {
        microBatchTokens: tokensAtOnce(decoder, signal),
        signal,
      });
      const bySolution = new Map(places.map(({ i }, at) => [i, found?.[at]]));
      return (
        found &&
        solutions.map((solution, i): SolutionScores => {
          const steps = [...(bySolution.get(i) ?? [])].map(([step, { least }]) => [step, least] as const);
          return { scores: scoresByStep(solution, steps) };
        })
      );
    },
  });
}

/** The sequences of solutions that can be read, each with its index. */
function reader(
  { config }: Decoder,
  { tokenizer: text, prompt = {}, maxLength = config.maxPositions, skipUnreadable = false }: ReadingOptions,
) {
  const tokenizer = verdictTokenizer(prompt, text);
  const sequencesOf = (solutions: readonly Solution[]) =>
    solutions.flatMap((asked, i) => {
      if (asked.steps.length === 0) return [];
      // Only labelled steps are judged; the label itself changes no verdict.
      const record = asRecord(asked, 1);
      const solution = readable(() => tokenizer.solution(record, { maxLength }), skipUnreadable);
      return solution ? [{ i, sequence: verdictSequence(solution, tokenizer, i) }] : [];
    });
  return { tokenizer, sequencesOf };
}
