// The result of an evaluation of solving, and its table.
import { plural } from '../../native/shown.js';
import { formatTable, wrapped } from '../../terminal/table.js';
import type { JsonObject } from '../../weights/json.js';
import { CONFIDENCE } from '../statistics/bootstrap.js';
import { percent } from '../statistics/percent.js';
import type { Aggregation } from './aggregation.js';
import type { MetricValue } from './metrics.js';
import type { SearchSettings } from './search.js';

/** solve.json. */
export interface SolvingReport {
  /** Number of problems, and of samples of each. */
  readonly problems: number;
  readonly n: number;
  /** Metrics by name; see docs/concepts/evaluation.md. Shares are fractions. */
  readonly metrics: Readonly<Record<string, MetricValue>>;
  /** The counts and metrics of each group of problems, by its name. */
  readonly groups?: Readonly<Record<string, SolvedGroup>>;
  readonly bootstrap: { readonly seed: number; readonly resamples: number; readonly confidence: number };
  /** The reward model, and how the scores of steps became one. */
  readonly scorer?: { readonly name: string; readonly aggregation: Aggregation };
  /** The judge of the steps. */
  readonly judge?: string;
  /** Settings of the search, where there was one. */
  readonly search?: SearchSettings;
  /** Settings that the samples depend on. */
  readonly settings: JsonObject;
  /** The rules by which an answer counts as right, and two as one in a vote. */
  readonly grading: {
    readonly expect: 'any' | 'choice';
    readonly units: 'optional' | 'required';
    /** Significant digits from which a decimal stands for what it is rounded from; null for never. */
    readonly digits: number | null;
  };
  /** Further values to keep in the report, such as the path of the data. */
  readonly about?: JsonObject;
  readonly warnings?: readonly string[];
}

export interface SolvedGroup {
  readonly problems: number;
  readonly metrics: SolvingReport['metrics'];
}

/** Columns of the table by group; solve.json has every metric. */
const MAX_COLUMNS = 6;

/** Titles of the metrics whose own name is not printed; docs/how-to/solve.md lists them. */
export const METRIC_TITLES: Readonly<Record<string, string>> = {
  step_errors: 'right with a wrong step',
  wrong_steps: 'wrong steps of right ones',
  auc_within: 'AUC within a problem',
  tokens: 'tokens a sample',
  tokens_problem: 'tokens a problem',
  best_equal: 'best of as many tokens',
  maj_equal: 'majority of as many tokens',
  tokens_search: 'tokens a search',
  tokens_equal: 'tokens beside it',
};

export function metricTitle(name: string): string {
  return METRIC_TITLES[name] ?? name;
}

/** Formats a metric in percent, or as a number of tokens. */
export function formatMetric(name: string, value: number): string {
  return name.startsWith('tokens') ? value.toFixed(1) : percent(value);
}

export function formatSolvingTable(report: SolvingReport, { boxed }: { readonly boxed: boolean }): string {
  const { problems, n, metrics, bootstrap, scorer, judge, search, about } = report;
  const samples = `${plural(n, 'sample')} each`;
  const shown = Object.entries(metrics).filter(([name]) => n > 1 || name !== 'tokens_problem');
  const rows = [
    [`${plural(problems, 'problem')}, ${samples}`, '%', `${100 * CONFIDENCE} % CI`],
    ...shown.map(([name, { value, interval }]) => [
      metricTitle(name),
      formatMetric(name, value),
      interval === undefined ? '' : interval.map((end) => formatMetric(name, end)).join('-'),
    ]),
  ];
  const lines = [
    ...(problems > 1
      ? [
          `intervals: ${bootstrap.resamples} bootstrap samples of ${problems} problems (seed ${bootstrap.seed}); of shares of 0 and 1 Wilson's`,
        ]
      : []),
    ...(scorer ? [`best and weighted: scores of ${scorer.name}, ${scorer.aggregation} of the steps`] : []),
    ...(search
      ? [
          `search: ${search.beams} beams, ${search.expansions} continuations of each by one step, at most ${search.rounds} steps`,
        ]
      : []),
    ...(judge ? [`steps judged by ${judge}`] : []),
    ...answeredBy(about),
    ...(report.warnings ?? []).map((warning) => `warning: ${warning}`),
  ];
  const draw = (table: readonly string[][]) => formatTable(table, { boxed });
  return [draw(rows), ...(report.groups ? [draw(groupRows(report.groups))] : []), ...lines.map(wrapped)].join(
    '\n',
  );
}

function groupRows(groups: NonNullable<SolvingReport['groups']>): string[][] {
  const all = new Set(Object.values(groups).flatMap(({ metrics }) => Object.keys(metrics)));
  const names = [...all].filter((name) => !name.startsWith('tokens')).slice(0, MAX_COLUMNS);
  return [
    ['by group, %', 'problems', ...names.map(metricTitle)],
    ...Object.entries(groups).map(([group, { problems, metrics }]) => [
      group,
      String(problems),
      // A share of nothing, as the AUC of a group without a right and a wrong sample of one problem.
      ...names.map((name) => {
        const { value } = metrics[name] ?? {};
        return value === undefined ? '–' : formatMetric(name, value);
      }),
    ]),
  ];
}

function answeredBy({ model, adapter }: JsonObject = {}): string[] {
  if (typeof model !== 'string') return [];
  const onTop = typeof adapter === 'string' && adapter !== model ? ` with ${adapter}` : '';
  return [`answers of ${model}${onTop}`];
}
