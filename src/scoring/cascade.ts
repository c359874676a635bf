/** A fast judge, and a second one for the solutions of which the first is unsure. */
import { RunError } from '../run/error.js';
import {
  isUnsure,
  ofOutcomes,
  probabilityOf,
  type Scorer,
  type SolutionScores,
  scorer,
  verdictsIn,
} from './scorer.js';

/**
 * The steps of which `first` is sure as it judges them; the others by `second`, which reads their solutions whole. A step to which
 * `second` gives no verdict keeps that of `first`, unsure as it is; none where it is unlike all that `first` learned from. Tokens are those that both have read.
 *
 * @param first gives probabilities or log-odds of steps
 * @param least probability of a verdict that is sure. Default: that of `first`, else 0.8
 */
export function cascade(first: Scorer, second: Scorer, least: number = first.unsure ?? 0.8): Scorer {
  for (const each of [first, second]) {
    if (each.unit === 'outcome') throw ofOutcomes(each.name);
    if (each.scale === 'reward')
      throw new RunError(`${each.name} gives no probability of a step, and a cascade needs one`);
  }
  return scorer({
    name: `${first.name} → ${second.name}`,
    unsure: least,
    async score(solutions, options) {
      const found = await first.score(solutions, options);
      if (!found) return undefined;
      const asked = found.flatMap((own, i) => (unsureSteps(first, own, least).length > 0 ? [i] : []));
      const more =
        asked.length > 0
          ? await second.score(
              asked.map((i) => solutions[i]!),
              options,
            )
          : [];
      if (!more) return undefined;
      return found.map((own, i) => {
        const other = more[asked.indexOf(i)];
        return joined({ scorer: first, own }, other && { scorer: second, own: other }, least);
      });
    },
    dispose() {
      first.dispose();
      second.dispose();
    },
  });
}

/** Steps with a verdict of which the scorer is not sure, and steps without any. */
export function unsureSteps(of: Scorer, own: SolutionScores, least: number): number[] {
  return verdictsIn(of, own).flatMap((verdict, step) =>
    verdict === null || isUnsure({ scale: of.scale, unsure: least }, own, step, verdict) ? [step] : [],
  );
}

interface Scored {
  readonly scorer: Scorer;
  readonly own: SolutionScores;
}

/** The scores of a solution as probabilities: those of `second`, where it has any, at the steps of which `first` is unsure. */
export function joined(first: Scored, second: Scored | undefined, least: number): SolutionScores {
  const [a, b] = [verdictsIn(first.scorer, first.own), second ? verdictsIn(second.scorer, second.own) : []];
  const byOther = new Set(
    unsureSteps(first.scorer, first.own, least).filter((step) => (b[step] ?? null) !== null),
  );
  const at = (step: number) => (byOther.has(step) ? (second as Scored) : first);
  const tokens = (first.own.tokens ?? 0) + (second?.own.tokens ?? 0);
  return {
    scores: a.map((_, step) => {
      const { scorer: of, own } = at(step);
      const score = own.scores[step] ?? null;
      return score === null ? null : probabilityOf(of, score);
    }),
    verdicts: a.map((verdict, step) => {
      // Text that neither learned anything like has no verdict.
      if (step >= (at(step).own.unlike?.from ?? Infinity)) return null;
      return byOther.has(step) ? (b[step] ?? null) : verdict;
    }),
    ...(tokens > 0 ? { tokens } : {}),
  };
}
