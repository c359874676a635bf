/** A way to label solutions, opened for a command. */
import type { PlacedSolution } from '../../eval/solution-stream.js';
import type { StepRecord } from '../../records/record.js';

/** Labels a batch; undefined if the signal stopped it. */
export type Labeller = (batch: readonly PlacedSolution[]) => Promise<StepRecord[] | undefined>;

export interface OpenLabeller {
  readonly label: Labeller;
  readonly settings: Readonly<Record<string, unknown>>;
  dispose(): void;
}
