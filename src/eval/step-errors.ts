/** Recall of each kind of error, where the data have the kinds. */
import type { SeenSteps } from '../data/overlap.js';
import { grouped } from '../native/grouped.js';
import type { StepRecord } from '../records/record.js';
import type { JudgedVerdict } from '../scoring/verdict/judged.js';
import { aucOf, ratio } from './statistics/metrics.js';
import { percent } from './statistics/percent.js';

/** Steps of one kind, and the share of them whose verdict is their label; a verdict that cannot be read is not. */
export interface Told {
  readonly n: number;
  readonly told: number;
}

export interface StepErrorMetrics extends Told {
  /** The same over the steps that do not occur in the training data; absent if that is not known. */
  readonly unseen?: Told;
  /** Share of pairs in which a right step has the higher probability than one of this kind; absent for right steps. */
  readonly auc?: number;
}

/** Metrics by kind of error. */
export type StepErrors = Readonly<Record<string, StepErrorMetrics>>;

const NONE: Told = { n: 0, told: 0 };

/** The key of steps that are right. */
export const RIGHT = 'right';

/**
 * Metrics by kind: right steps, then the kinds of wrong ones, the most frequent first; undefined where no step has a
 * kind.
 */
export function metricsByError(
  judged: readonly JudgedVerdict[],
  records: readonly Pick<StepRecord, 'steps'>[],
  seen?: SeenSteps,
): StepErrors | undefined {
  const kindOf = ({ label, solution, step }: JudgedVerdict) =>
    label === 1 ? RIGHT : records[solution]?.steps[step]?.error;
  const kinds = new Map<string, JudgedVerdict[]>([[RIGHT, []], ...grouped(judged, kindOf)]);
  if (kinds.size === 1) return undefined;
  const order = ([a, of]: [string, unknown[]], [b, other]: [string, unknown[]]) =>
    Number(b === RIGHT) - Number(a === RIGHT) || other.length - of.length || a.localeCompare(b, 'en');
  return Object.fromEntries(
    [...kinds].sort(order).map(([kind, own]) => {
      const unseen = seen && told(own.filter((verdict) => !seen(verdict)));
      const auc = kind === RIGHT ? undefined : aucOf([...(kinds.get(RIGHT) ?? []), ...own]);
      return [kind, { ...told(own), ...(unseen ? { unseen } : {}), ...(auc === undefined ? {} : { auc }) }];
    }),
  );
}

function told(judged: readonly JudgedVerdict[]): Told {
  const n = judged.length;
  return { n, told: ratio(judged.filter(({ label, verdict }) => verdict === label).length, n) };
}

/** A row for each kind; the first has the titles. Empty where no step says its kind. */
export function errorRows({
  errors,
  words,
}: {
  readonly errors?: StepErrors;
  /** The report of the verdict words alone, where the judge weighs more. */
  readonly words?: { readonly errors?: StepErrors };
}): string[][] {
  if (!errors) return [];
  const all = Object.entries(errors);
  const hasUnseen = all.some(([, { unseen }]) => unseen !== undefined);
  const byWords = words?.errors;
  const share = ({ n, told }: Told) => (n > 0 ? percent(told) : '–');
  const cells = (of: Told, alone: Told | undefined) => [
    String(of.n),
    share(of),
    ...(byWords ? [share(alone ?? NONE)] : []),
  ];
  const titles = ['judge', ...(byWords ? ['verdicts'] : [])];
  return [
    ['recall by kind of error, %', 'steps', ...titles, ...(hasUnseen ? ['unseen', ...titles] : [])],
    ...all.map(([kind, of]) => [
      kind,
      ...cells(of, byWords?.[kind]),
      ...(hasUnseen ? cells(of.unseen ?? NONE, byWords?.[kind]?.unseen) : []),
    ]),
  ];
}
