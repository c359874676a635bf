/** The rows of a round: sampled candidates, and labelled records made from them, which other runs can read as data. */

import { judgeText } from '../../../data/problems/oracle.js';
import { objectRows } from '../../../data/rows.js';
import { badOption } from '../../../files/data-error.js';
import type { Step, StepRecord } from '../../../records/record.js';
import { piecesBy, type Segmentation } from '../../../records/segment.js';
import { gradeSolution, type RunProblem } from '../../../train/solutions/problems.js';

/** The rows of an artefact, which this package wrote. */
export async function artefactRows<Row>(path: string): Promise<Row[]> {
  const rows: Row[] = [];
  for await (const { row } of objectRows(path)) rows.push(row as unknown as Row);
  return rows;
}

/** A row of artefacts/samples-N.jsonl. */
export interface CandidateRow {
  /** Index among the run's training problems. */
  readonly problem: number;
  readonly sample: number;
  readonly text: string;
  readonly tokens: number;
  readonly finish_reason: 'stop' | 'length';
}

export interface Candidate extends CandidateRow {
  readonly right: boolean;
}

/** Whether a solution gives the problem's answer; one that was cut off gives none. */
export function isRight(
  problem: RunProblem,
  { text, finish_reason: reason }: Pick<CandidateRow, 'text' | 'finish_reason'>,
): boolean {
  if (reason !== 'stop') return false;
  if (problem.generated) return judgeText(problem.generated, text).isAnswerRight;
  return gradeSolution(problem, text, true).correct;
}

/** A note on candidates that were cut off, and so are not learned from; undefined where none was. */
export function cutOffNote(
  candidates: readonly Pick<CandidateRow, 'finish_reason'>[],
  maxNewTokens: number,
): string | undefined {
  const cut = candidates.filter(({ finish_reason: reason }) => reason === 'length').length;
  if (cut === 0) return undefined;
  const [were, are] = cut === 1 ? ['was', 'is'] : ['were', 'are'];
  return (
    `${cut} of ${candidates.length} candidates ${were} cut off at sampling.max_new_tokens ${maxNewTokens} and ${are} left out` +
    (cut > candidates.length / 10 ? '; raise it' : '')
  );
}

export interface SelectionOptions {
  readonly dedupe: boolean;
  readonly balance_per_problem: boolean;
  readonly drop_unanimous: boolean;
}

export interface Selection<C extends Candidate = Candidate> {
  readonly kept: readonly C[];
  /** Left out, by reason. */
  readonly left: Readonly<Record<'cut_off' | 'empty' | 'duplicate' | 'unbalanced' | 'unanimous', number>>;
}

/** The candidates of one problem that are learned from. One that was cut off says nothing about its end and is left out. */
export function selectCandidates<C extends Candidate>(
  candidates: readonly C[],
  options: SelectionOptions,
): Selection<C> {
  const left = { cut_off: 0, empty: 0, duplicate: 0, unbalanced: 0, unanimous: 0 };
  const seen = new Set<string>();
  let kept = candidates.filter(({ text, finish_reason }) => {
    if (finish_reason === 'length') left.cut_off++;
    else if (text.trim() === '') left.empty++;
    else if (options.dedupe && seen.has(text)) left.duplicate++;
    else {
      seen.add(text);
      return true;
    }
    return false;
  });
  const count = (right: boolean) => kept.filter((candidate) => candidate.right === right).length;
  const least = Math.min(count(true), count(false));
  if (options.drop_unanimous && least === 0) {
    left.unanimous += kept.length;
    return { kept: [], left };
  }
  if (options.balance_per_problem) {
    const taken = { true: 0, false: 0 };
    const before = kept.length;
    kept = kept.filter(({ right }) => taken[`${right}`]++ < least);
    left.unbalanced += before - kept.length;
  }
  return { kept, left };
}

/** A labelled candidate, in the layout `record`. @throws DataError where a judge gave another number of labels than steps */
export function labelledRecord(
  problem: RunProblem,
  { text, right, problem: row, sample }: Candidate,
  labels: readonly (0 | 1 | null)[],
  source: string,
  rule?: Segmentation,
): StepRecord {
  const pieces = piecesBy(text, rule);
  if (pieces.length !== labels.length)
    throw badOption(`the judge gave ${labels.length} labels for ${pieces.length} steps`);
  return {
    problem: problem.problem,
    ...(problem.solution === undefined ? {} : { gold_solution: problem.solution }),
    gold_answer: problem.answer,
    steps: pieces.map((text, i): Step => ({ text, label: labels[i] ?? null, kind: 'normal' })),
    outcome: right ? 1 : 0,
    provenance: { file: source, row: row + 1, id: `problem ${row}, sample ${sample}` },
  };
}
