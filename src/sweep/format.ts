// The tables of a sweep as Markdown, which reads as well on a terminal.
import { formatProbability } from '../eval/comparison.js';
import { formatSigned, percent } from '../eval/statistics/percent.js';
import { intervalReading } from '../eval/statistics/student.js';
import { plural } from '../native/shown.js';
import { formatMetric } from '../terminal/progress.js';
import { describePoint } from './cells.js';
import type { Column } from './file.js';
import type { ArmSummary, SweepSummary } from './summary.js';

/** sweep.md: the choices, the table, the differences, and how to read them. */
export function formatSweep(summary: SweepSummary): string {
  return [
    `# ${summary.file}`,
    ...chosenPoints(summary),
    results(summary),
    ...differenceParts(summary),
    ...notes(summary).map((note) => `Note: ${note}.`),
  ].join('\n\n');
}

function results({ arms, report, seeds }: SweepSummary): string {
  const head = [`mean ± deviation, ${plural(seeds.length, 'seed')}`, ...report.map(titled)];
  return table([
    head,
    ...arms.map((arm) => [arm.arm, ...report.map((column) => resultCell(arm, column, seeds.length))]),
  ]);
}

function resultCell({ columns }: ArmSummary, { title, unit }: Column, seeds: number): string {
  const { n, mean, deviation } = columns[title]!;
  if (mean === undefined) return '–';
  const spread = deviation === undefined || unit === 'count' ? '' : ` ± ${shown(deviation, unit)}`;
  return `${shown(mean, unit)}${spread}${n < seeds ? ` (${n} of ${seeds})` : ''}`;
}

function chosenPoints({ trials, select }: SweepSummary): string[] {
  if (!select || trials.length === 0) return [];
  const rows = trials.map(({ arm, point, mean, chosen }) => [
    arm,
    describePoint(point),
    mean === undefined ? '–' : mean.toFixed(4),
    chosen ? 'chosen' : '',
  ]);
  const seeds = `${select.seeds.length === 1 ? 'seed' : 'seeds'} ${select.seeds.join(', ')}`;
  return [
    `Selected by ${select.goal === 'max' ? 'the highest' : 'the lowest'} mean ${select.on}, ${seeds}:`,
    table([['arm', 'tried', select.on, ''], ...rows]),
  ];
}

function differenceParts({ differences, report }: SweepSummary): string[] {
  if (differences.length === 0) return [];
  const unitOf = (title: string) => report.find((column) => column.title === title)!;
  const rows = differences.map((difference) => {
    const column = unitOf(difference.column);
    const signed = (value: number) => formatSigned(value, (size) => shown(size, column.unit));
    const { arm, to, n, mean, interval, p } = difference;
    return [
      `${arm} − ${to}`,
      titled(column),
      signed(mean),
      interval ? interval.map(signed).join(' to ') : '–',
      p === undefined ? '–' : formatProbability(p),
      String(n),
      intervalReading(difference),
    ];
  });
  return [
    'Differences, paired by seed:',
    table([['arms', 'value', 'difference', '95 % interval', 'p', 'seeds', 'reading'], ...rows]),
    'Intervals and p are those of Student’s t over the seeds: they speak of other seeds on the same test data. ' +
      (differences.length === 1
        ? 'One comparison is made.'
        : `${differences.length} comparisons are made; nothing is corrected for their number.`),
  ];
}

function notes({ arms, unfinished, trials, select, seeds, warnings }: SweepSummary): string[] {
  const failed = unfinished.filter(({ failed }) => failed !== undefined);
  const open = unfinished.length - failed.length;
  const [first] = warnings;
  const tried = [...new Set(arms.map((arm) => arm.trials))];
  const undecided = arms.filter(({ point }) => point === undefined).map(({ arm }) => arm);
  const shared = trials.length > 0 ? (select?.seeds ?? []).filter((seed) => seeds.includes(seed)) : [];
  return [
    ...(open > 0
      ? [`${open} ${open === 1 ? 'run has' : 'runs have'} not ended; the same command goes on`]
      : []),
    ...failed.map(({ run, failed }) => `${run} failed: ${failed}`),
    ...trials
      .flatMap(({ without = [] }) => without)
      .map((run) => `${run} has ended without ${select?.on}, so that its point is not selected`),
    ...undecided.map((arm) => `nothing is selected for ${arm} yet`),
    ...(tried.length > 1
      ? [`arms were tuned unequally: ${arms.map(({ arm, trials }) => `${arm} tried ${trials}`).join(', ')}`]
      : []),
    ...(shared.length > 0 ? [`seeds ${shared.join(', ')} both select and report`] : []),
    ...(first
      ? [
          `${plural(warnings.length, 'run')} of the table with warnings in eval.json, such as ${first.run}: ${first.warning}`,
        ]
      : []),
  ];
}

function titled({ title, unit }: Column): string {
  return unit === 'percent' ? `${title}, %` : title;
}

function shown(value: number, unit: Column['unit']): string {
  return unit === 'percent' ? percent(value) : formatMetric(value);
}

/** A Markdown table whose columns are aligned in plain text too. */
function table(rows: readonly (readonly string[])[]): string {
  const escaped = rows.map((row) => row.map((text) => text.replaceAll('|', '\\|')));
  const widths = escaped[0]!.map((_, i) => Math.max(3, ...escaped.map((row) => row[i]!.length)));
  const line = (row: readonly string[]) =>
    `| ${row.map((text, i) => (i === 0 ? text.padEnd(widths[i]!) : text.padStart(widths[i]!))).join(' | ')} |`;
  const rule = `| ${widths.map((width, i) => (i === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`)).join(' | ')} |`;
  return [line(escaped[0]!), rule, ...escaped.slice(1).map(line)].join('\n');
}
