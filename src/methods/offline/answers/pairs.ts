/** Objectives of pairs: a chosen and a rejected answer to each prompt. */
import type { DpoPairs } from '../../../objectives/pairs.js';
import type { Objective } from '../../../objectives/statistics.js';
import {
  type ScoredAnswer,
  type ScoredBatch,
  type SpanScores,
  spanScores,
} from '../../../scoring/implicit/sums.js';
import type { OfflineObjective } from './objective.js';

export interface PairObjectiveOptions {
  readonly needsReference: boolean;
  /** Scores of one side, computed from the sums of its answers' log-probs. Default: the sums. */
  readonly score?: (
    scored: ScoredBatch,
    answers: readonly ScoredAnswer[],
    side: 'chosen' | 'rejected',
  ) => SpanScores;
  /** The mean over the pairs that `weights` say. */
  readonly loss: (sides: DpoPairs) => Objective<string>;
  /** Names under which statistics are logged. Default: TRL's. */
  readonly logged?: Readonly<Record<string, string>>;
}

const LOGGED = {
  accuracy: 'rewards_accuracies',
  margin: 'rewards_margins',
  chosen: 'rewards_chosen',
  rejected: 'rewards_rejected',
};

/** Sums, or with `mean` means per token, of whole answers. */
export const wholeScores =
  ({ mean }: { readonly mean: boolean }) =>
  (scored: ScoredBatch, answers: readonly ScoredAnswer[]): SpanScores =>
    spanScores(
      scored,
      answers.map((answer) => ({ answer })),
      { mean },
    );

export function pairObjective({
  needsReference,
  score = wholeScores({ mean: false }),
  loss,
  logged = LOGGED,
}: PairObjectiveOptions): OfflineObjective {
  return {
    needsReference,
    needsMismatched: false,
    begin: (batch) => ({
      terms(scored) {
        const { device } = scored.logprobs;
        const side = (rest: number) => scored.answers.filter((_, i) => i % 2 === rest);
        const chosen = score(scored, side(0), 'chosen');
        const rejected = score(scored, side(1), 'rejected');
        const pairs = scored.answers.length / 2;
        const made = loss({
          chosen: chosen.policy,
          rejected: rejected.policy,
          ...(needsReference ? { refChosen: chosen.ref, refRejected: rejected.ref } : {}),
          weights: device.tensor(new Float32Array(pairs).fill(1 / batch.length)),
        });
        return [
          {
            ...made,
            measure(found, means) {
              for (const [name, as] of Object.entries(logged)) means.mean(as, found[name] ?? 0, pairs);
            },
          },
        ];
      },
    }),
  };
}
