/** The worth and the cost of a second judge for the solutions of which a fast one is unsure. */

import type { StepRecord } from '../records/record.js';
import { joined, unsureSteps } from '../scoring/cascade.js';
import { type Scorer, type SolutionScores, verdictsIn } from '../scoring/scorer.js';
import { formatTable } from '../terminal/table.js';
import { firstErrorCases } from './evaluate-verdicts.js';
import { recordScores } from './record-solution.js';
import { confusionMetrics, countConfusion } from './statistics/metrics.js';
import { percent } from './statistics/percent.js';
import { processBenchReport } from './statistics/solutions.js';

export interface CascadeRow {
  /** The probability of a verdict from which on the first judge was sure; null for one judge alone. */
  readonly least: number | null;
  /** Share of the solutions that the second judge read. */
  readonly asked: number;
  /** Macro F1 of steps; a step without a verdict counts as wrong. */
  readonly f1_macro: number;
  /** ProcessBench F1, the mean over files; absent where no solution has the labels for it. */
  readonly processbench?: number;
  readonly tokens: number;
  /** Seconds of a cascade: those of the first judge, and of the second in proportion to the tokens (of servers, solutions) that it read. */
  readonly seconds: number;
}

export interface CascadeReport {
  readonly first: string;
  readonly second: string;
  readonly solutions: number;
  readonly steps: number;
  /** Labelled steps to which each judge gives no verdict; they count as wrong. */
  readonly unjudged: { readonly first: number; readonly second: number };
  /** The first alone, the cascades, the second alone. */
  readonly rows: readonly CascadeRow[];
}

export interface CascadeOptions {
  /** Least probabilities of a sure verdict. Default 0.6, 0.7, 0.8, 0.9 and 0.95. */
  readonly levels?: readonly number[];
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
}

const LEVELS = [0.6, 0.7, 0.8, 0.9, 0.95];

/** Both judges read all solutions, so that each level of the cascade is exact in its verdicts and tokens. */
export async function evaluateCascade(
  first: Scorer,
  second: Scorer,
  records: readonly StepRecord[],
  { levels = LEVELS, signal, onProgress }: CascadeOptions = {},
): Promise<CascadeReport> {
  const total = 2 * records.length;
  const a = await timed(first, records, signal, (done) => onProgress?.(done, total));
  const b = await timed(second, records, signal, (done) => onProgress?.(records.length + done, total));
  const alone = (of: Scorer, { scores, seconds }: Timed, asked: number): CascadeRow => ({
    ...{
      least: null,
      asked,
      ...worth(
        records,
        scores.map((own) => verdictsIn(of, own)),
      ),
    },
    ...{ tokens: tokensIn(scores), seconds },
  });
  const all = tokensIn(b.scores);
  const rows = levels.map((least): CascadeRow => {
    const asked = a.scores.map((own) => unsureSteps(first, own, least).length > 0);
    const read = b.scores.filter((_, i) => asked[i]);
    const count = read.length / Math.max(1, records.length);
    const share = all > 0 ? tokensIn(read) / all : count;
    const verdicts = a.scores.map(
      (own, i) =>
        joined(
          { scorer: first, own },
          asked[i] ? { scorer: second, own: b.scores[i] as SolutionScores } : undefined,
          least,
        ).verdicts as (1 | 0 | null)[],
    );
    return {
      ...{ least, asked: count, ...worth(records, verdicts) },
      tokens: tokensIn(a.scores) + tokensIn(read),
      seconds: a.seconds + b.seconds * share,
    };
  });
  return {
    first: first.name,
    second: second.name,
    solutions: records.length,
    steps: records.reduce((sum, { steps }) => sum + steps.filter(({ label }) => label !== null).length, 0),
    unjudged: { first: withoutVerdict(first, a, records), second: withoutVerdict(second, b, records) },
    rows: [alone(first, a, 0), ...rows, alone(second, b, 1)],
  };
}

interface Timed {
  readonly scores: readonly SolutionScores[];
  readonly seconds: number;
}

async function timed(
  judge: Scorer,
  records: readonly StepRecord[],
  signal: AbortSignal | undefined,
  told: (done: number) => void,
): Promise<Timed> {
  const scores: SolutionScores[] = [];
  const start = performance.now();
  for await (const { own } of recordScores(judge, records, signal, told)) scores.push(own);
  signal?.throwIfAborted();
  return { scores, seconds: (performance.now() - start) / 1000 };
}

function withoutVerdict(of: Scorer, { scores }: Timed, records: readonly StepRecord[]): number {
  return scores.reduce((sum, own, i) => {
    const verdicts = verdictsIn(of, own);
    const steps = records[i]?.steps ?? [];
    return (
      sum + steps.filter(({ label }, step) => label !== null && (verdicts[step] ?? null) === null).length
    );
  }, 0);
}

const tokensIn = (scores: readonly SolutionScores[]) =>
  scores.reduce((sum, { tokens = 0 }) => sum + tokens, 0);

function worth(records: readonly StepRecord[], verdicts: readonly (readonly (1 | 0 | null)[])[]) {
  const judged = records.flatMap(({ steps }, solution) =>
    steps.flatMap(({ label }, step) =>
      label === null ? [] : [{ solution, step, label, verdict: verdicts[solution]?.[step] ?? undefined }],
    ),
  );
  const mean = processBenchReport(firstErrorCases(judged, records))?.average_f1;
  const { confusion } = countConfusion(judged, { invalidAsWrong: true });
  return {
    f1_macro: confusionMetrics(confusion).f1_macro,
    ...(mean === undefined ? {} : { processbench: mean }),
  };
}

export function formatCascade({ first, second, solutions, steps, unjudged, rows }: CascadeReport): string {
  const title = ({ least, asked }: CascadeRow) =>
    least === null ? `${asked === 0 ? 'first' : 'second'} alone` : `unsure below ${percent(least)} %`;
  return [
    formatTable([
      [`${solutions} solutions, ${steps} steps`, 'asked %', 'F1 macro', 'ProcessBench', 'tokens', 'seconds'],
      ...rows.map((row) => [
        title(row),
        percent(row.asked),
        percent(row.f1_macro),
        row.processbench === undefined ? '–' : percent(row.processbench),
        String(row.tokens),
        row.seconds.toFixed(1),
      ]),
    ]),
    `first: ${first}; second: ${second}; asked: the share of solutions that the second read, whose unsure steps have its verdicts`,
    ...(unjudged.first + unjudged.second > 0
      ? [
          `steps without a verdict, which count as wrong: ${unjudged.first} of the first, ${unjudged.second} of the second`,
        ]
      : []),
    "seconds of a cascade: the first judge's on all, plus the second's times the share of its tokens that it read",
  ].join('\n');
}
