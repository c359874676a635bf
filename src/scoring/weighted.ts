/** Two scorers of steps as one, by the weights of a logistic regression. */
import { type Scorer, type SolutionScores, scorer } from './scorer.js';
import type { LikelihoodWeights } from './settings.js';
import { probability, verdictOfOdds } from './verdict/judged.js';
import { logOdds } from './verdict/likelihood.js';

interface WeightedOptions {
  readonly weights: LikelihoodWeights;
  /** Probability from which a step is right. */
  readonly threshold: number;
}

/**
 * The probability of a right step by the log-odds of `words` and by `evidence`, whose scores are at most 0: that of the
 * step, and the least of those before it. A step that only one of them can score is scored by that one.
 */
export function weighted(words: Scorer, evidence: Scorer, options: WeightedOptions): Scorer {
  return scorer({
    name: words.name,
    threshold: options.threshold,
    readsTurns: true,
    async score(solutions, asked) {
      const byWords = await words.score(solutions, asked);
      const byEvidence = byWords && (await evidence.score(solutions, asked));
      return byEvidence?.map((own, i) => together(byWords?.[i] as SolutionScores, own, options));
    },
  });
}

function together(
  { scores: odds, verdicts, reasons, ...words }: SolutionScores,
  evidence: SolutionScores,
  { weights, threshold }: WeightedOptions,
): SolutionScores {
  const isAlone = weights.of === 'calculations' && weights.verdict === 0;
  let before = 0;
  const steps = odds.map((own, step) => {
    const found = evidence.scores[step] ?? null;
    const likelihood = { least: found ?? 0, before, ...(found === null ? {} : { checked: true as const }) };
    before = Math.min(before, likelihood.least);
    if (own === null && found === null) return { score: null, verdict: null };
    // Steps without a calculation would share one probability, which says nothing of a single step.
    if (isAlone && found === null) return { score: null, verdict: null };
    // After a reason that did not end there is no word, and nothing to weigh.
    if (own !== null && reasons?.[step] === null) return { score: null, verdict: null };
    if (own !== null && found === null && weights.of === undefined)
      return { score: probability(own), verdict: verdicts?.[step] ?? null };
    const all = logOdds({ logPositive: own ?? 0, logNegative: 0 }, likelihood, weights);
    const by = verdictOfOdds(all, threshold);
    return { score: by.probability, verdict: by.verdict };
  });
  const said = evidence.reasons?.map((reason, step) => {
    const computed = reason && (odds[step] === null ? `${reason} (the model did not read the step)` : reason);
    return [reasons?.[step], computed].filter(Boolean).join('; ') || null;
  });
  return {
    ...words,
    scores: steps.map(({ score }) => score),
    verdicts: steps.map(({ verdict }) => verdict),
    ...(said || reasons ? { reasons: said ?? (reasons as readonly (string | null)[]) } : {}),
  };
}
