/** The length of reasons that are still to be written, for counts of tokens before a run. */
import type { Dataset } from '../../data/dataset.js';
import type { VerdictSequence } from '../../sequences/sequence.js';
import { mean } from '../../train/policy/metrics.js';

/** Mean tokens of the reasons in the training data, with their line breaks; 0 where it has none. */
export function usualReasonLength(train: Dataset<VerdictSequence>): number {
  const lengths = Array.from(train, ({ solution: { verdicts } }) =>
    verdicts.flatMap(({ rationale }) => rationale?.length ?? []),
  ).flat();
  return lengths.length === 0 ? 0 : Math.round(mean(lengths));
}
