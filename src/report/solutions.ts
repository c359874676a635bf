/** verdicts.jsonl as solutions: the judged steps of each, with label, probability and verdict. */
import { readVerdictDump, type VerdictRow } from '../eval/reports/dump.js';
import { grouped } from '../native/grouped.js';

export interface JudgedSolution {
  readonly problem: string;
  readonly steps: readonly VerdictRow[];
}

/** @throws RunError where a row is no judged step */
export async function readJudgedSolutions(path: string): Promise<JudgedSolution[]> {
  const found = grouped(await readVerdictDump(path), ({ solution }) => solution);
  return [...found.values()].map((steps) => ({ problem: steps[0]!.problem, steps }));
}

export type Outcome = 'right' | 'missed' | 'false alarm' | 'unreadable';

/** Compares a verdict with its label. */
export function outcomeOf({ label, verdict }: Pick<VerdictRow, 'label' | 'verdict'>): Outcome {
  if (verdict === null) return 'unreadable';
  if (verdict === label) return 'right';
  return label === 0 ? 'missed' : 'false alarm';
}

/** Counts of the four cells, positive = a right step; `unreadable` verdicts are in none. */
export function confusionOf(solutions: readonly JudgedSolution[]) {
  const counts = { tp: 0, fn: 0, fp: 0, tn: 0, unreadablePositive: 0, unreadableNegative: 0 };
  for (const { label, verdict } of solutions.flatMap(({ steps }) => steps)) {
    if (verdict === null) label === 1 ? counts.unreadablePositive++ : counts.unreadableNegative++;
    else if (label === 1) verdict === 1 ? counts.tp++ : counts.fn++;
    else verdict === 0 ? counts.tn++ : counts.fp++;
  }
  return counts;
}

/**
 * A few solutions to read, the same ones for the same file: the most confident mistakes of either kind, one that cannot
 * be read, then solutions that are judged without a mistake, wrong ones first.
 */
export function chosenSolutions(solutions: readonly JudgedSolution[], max = 12): JudgedSolution[] {
  const worst = (outcome: Outcome) =>
    solutions
      .map((solution) => ({
        solution,
        error: Math.max(
          0,
          ...solution.steps
            .filter((step) => outcomeOf(step) === outcome)
            .map(({ label, probability }) => Math.abs(probability - label)),
        ),
      }))
      .filter(({ error }) => error > 0)
      .sort((a, b) => b.error - a.error)
      .map(({ solution }) => solution);
  const faultless = solutions.filter(({ steps }) => steps.every((step) => outcomeOf(step) === 'right'));
  const hasWrong = ({ steps }: JudgedSolution) => steps.some(({ label }) => label === 0);
  const third = Math.max(1, Math.floor(max / 3));
  return [
    ...new Set([
      ...worst('missed').slice(0, third),
      ...worst('false alarm').slice(0, third),
      ...worst('unreadable').slice(0, 1),
      ...faultless.filter(hasWrong).slice(0, third),
      ...faultless.filter((solution) => !hasWrong(solution)).slice(0, third),
    ]),
  ].slice(0, max);
}
