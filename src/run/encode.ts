/** A record as its tokens and fingerprints, as a token store keeps them. */
import { solutionRank } from '../data/limit.js';
import { problemKey, stepKey } from '../data/overlap.js';
import type { StoredSolution } from '../data/token-store.js';
import type { VerdictTokenizer } from '../data/verdict.js';
import type { StepRecord } from '../records/record.js';

/** Fields of a stored solution that take time to compute. */
export type EncodedRecord = Pick<
  StoredSolution,
  'key' | 'stepKeys' | 'ids' | 'promptEnd' | 'stepEnds' | 'rank'
>;

/** @param options `whole`: up to the last step, not only to the last labelled one; `seed`: `data.seed` */
export function encodeRecord(
  verdicts: VerdictTokenizer,
  record: StepRecord,
  { whole, seed }: { readonly whole: boolean; readonly seed: number },
): EncodedRecord {
  const { ids, steps } = verdicts.solution(record, whole ? { steps: 'all' } : {}).trunk;
  return {
    key: problemKey(record.problem),
    stepKeys: record.steps.map(stepKey),
    ids,
    promptEnd: steps[0]?.start ?? ids.length,
    stepEnds: steps.map(({ end }) => end),
    rank: solutionRank(record, seed),
  };
}
