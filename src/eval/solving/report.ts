// What an evaluation of solving gives, and its table.
import type { JsonObject } from '../../weights/json.js';
import { CONFIDENCE } from '../bootstrap.js';
import { percent } from '../percent.js';
import { boxedTable, plainTable, wrapped } from '../table.js';
import type { MetricValue } from './metrics.js';

/** solve.json. */
export interface SolvingReport {
  /** Number of problems, and of samples of each. */
  readonly problems: number;
  readonly n: number;
  /** By name; see docs/evaluation.md. Shares as fractions. */
  readonly metrics: Readonly<Record<string, MetricValue>>;
  readonly bootstrap: { readonly seed: number; readonly resamples: number; readonly confidence: number };
  /** What the samples depend on. */
  readonly settings: JsonObject;
  /** Whatever the caller wants to be kept beside it, such as the data's path. */
  readonly about?: JsonObject;
  readonly warnings?: readonly string[];
}

const TITLES: Readonly<Record<string, string>> = {
  step_errors: 'right with a wrong step',
  wrong_steps: 'wrong steps in right ones',
  tokens: 'tokens a sample',
  tokens_problem: 'tokens a problem',
};

export function formatSolvingTable(report: SolvingReport, { boxed }: { readonly boxed: boolean }): string {
  const { problems, n, metrics, bootstrap } = report;
  const samples = n === 1 ? '1 sample each' : `${n} samples each`;
  const isCount = (name: string) => name.startsWith('tokens');
  const show = (name: string, value: number) => (isCount(name) ? value.toFixed(1) : percent(value));
  const shown = Object.entries(metrics).filter(([name]) => n > 1 || name !== 'tokens_problem');
  const rows = [
    [`${problems} problems, ${samples}`, '%', `${100 * CONFIDENCE} % CI`],
    ...shown.map(([name, { value, interval }]) => [
      TITLES[name] ?? name,
      show(name, value),
      interval === undefined ? '' : interval.map((end) => show(name, end)).join('-'),
    ]),
  ];
  return [
    boxed ? boxedTable(rows) : plainTable(rows),
    ...(problems > 1
      ? [
          wrapped(
            `intervals: ${bootstrap.resamples} bootstrap samples of ${problems} problems (seed ${bootstrap.seed})`,
          ),
        ]
      : []),
    ...(report.warnings ?? []).map((warning) => wrapped(`warning: ${warning}`)),
  ].join('\n');
}
