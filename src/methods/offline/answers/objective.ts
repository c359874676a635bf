/** An objective, as the loop of `stage.ts` takes it. */

import type { OfflineItem } from '../../../scoring/implicit/items.js';
import type { ScoredBatch, SpanSums } from '../../../scoring/implicit/sums.js';
import type { LossTerm } from '../../../train/accumulate.js';
import type { Means } from './means.js';

/** Sums of the mismatched pairs of an optimizer batch; see `pairing.ts`. */
export interface MismatchedSums {
  readonly policy: readonly SpanSums[];
  readonly reference: readonly SpanSums[];
}

/** A term of the loss that says what is logged of it. */
export interface OfflineTerm extends LossTerm {
  /** Logs the statistics. */
  measure(statistics: Readonly<Record<string, number>>, means: Means): void;
}

/** The objective of one optimizer batch: its normalisers and reference points are known. */
interface BatchObjective {
  terms(batch: ScoredBatch): readonly OfflineTerm[];
  /** Called after the last micro-batch, to log metrics of all of them. */
  end?(means: Means): void;
}

export interface OfflineObjective {
  /** Reads `ScoredAnswer.reference`. */
  readonly needsReference: boolean;
  /** Learns under the dropout of the adapter: where log-probs are compared, with a reference's or with each other, it would be noise. */
  readonly dropout?: true;
  /** Needs the sums of mismatched pairs, and so problems that differ within each batch. */
  readonly needsMismatched: boolean;
  begin(batch: readonly OfflineItem[], mismatched: MismatchedSums | undefined, means: Means): BatchObjective;
}
