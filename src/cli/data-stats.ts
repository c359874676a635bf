// `steptrain data stats`: what a recipe would train and be judged on, counted before any of it runs.
import type { RunConfig, SftRunConfig } from '../config/schema.js';
import type { LoadReport } from '../data/load.js';
import type { StepRecord } from '../data/record.js';
import { PARTS, type Part, problemOverlap } from '../data/split.js';
import { type DataStatistics, StatisticsCounter } from '../data/statistics.js';
import { type VerdictTokenizer, verdictTokenizer } from '../data/verdict.js';
import { configuredRecords, configuredTokenizer } from '../run/inputs.js';

export interface DataStats {
  readonly parts: Readonly<Record<Part, PartStats>>;
  readonly reports: readonly LoadReport[];
  /** Problems of the test part that are also trained on. */
  readonly overlap: number;
}

export interface PartStats {
  readonly counts: DataStatistics;
  /** Only where verdicts are learned. */
  readonly lengths?: LengthStats;
}

/** Tokens per solution, prompt and steps without verdicts, and the labelled steps that `data.max_length` leaves out. */
export interface LengthStats {
  readonly tokens: number;
  readonly median: number;
  readonly longest: number;
  readonly stepsTooLong: number;
}

/** Reads all the data that `config` names and counts it. */
export async function dataStats(config: RunConfig): Promise<DataStats> {
  const { parts, reports } = await configuredRecords(config.data);
  const tokenizer = config.method === 'sft' ? await tokenizerOf(config) : undefined;
  const stats = (records: readonly StepRecord[]): PartStats => {
    const counter = new StatisticsCounter();
    for (const record of records) counter.add(record);
    const counts = counter.result();
    if (tokenizer === undefined) return { counts };
    return { counts, lengths: measureLengths(records, tokenizer, config.data.max_length) };
  };
  return {
    parts: { train: stats(parts.train), validation: stats(parts.validation), test: stats(parts.test) },
    reports,
    overlap: problemOverlap(parts.train, parts.test).count,
  };
}

export function formatDataStats({ parts, reports, overlap }: DataStats): string {
  const columns = PARTS.map((part) => parts[part]);
  const rows: string[][] = [
    ['', ...PARTS],
    ['solutions', ...columns.map(({ counts }) => String(counts.records))],
    ['problems', ...columns.map(({ counts }) => String(counts.problems))],
    ['labelled steps', ...columns.map(({ counts }) => String(counts.samples))],
    ['correct', ...columns.map(({ counts }) => share(counts.positive, counts.samples))],
    ['wrong', ...columns.map(({ counts }) => share(counts.negative, counts.samples))],
    ['steps without a label', ...columns.map(({ counts }) => String(counts.unlabelled))],
  ];
  if (columns.some(({ lengths }) => lengths)) {
    const lengths = (pick: (stats: LengthStats) => number) =>
      columns.map((column) => (column.lengths ? String(pick(column.lengths)) : ''));
    rows.push(
      ['tokens', ...lengths((stats) => stats.tokens)],
      ['tokens, median solution', ...lengths((stats) => stats.median)],
      ['tokens, longest solution', ...lengths((stats) => stats.longest)],
      ['steps beyond max_length', ...lengths((stats) => stats.stepsTooLong)],
    );
  }
  const width = Math.max(...rows.map(([title]) => title!.length));
  const lines = rows.map(
    ([title, ...cells]) => title!.padEnd(width) + cells.map((cell) => cell.padStart(16)).join(''),
  );
  for (const report of reports) lines.push('', ...describeReport(report));
  if (overlap > 0) lines.push('', `Warning: ${overlap} problems of the test part are also trained on.`);
  return lines.join('\n');
}

function describeReport({ files, rows, records, skipped, unlabelled, firstBadRow }: LoadReport): string[] {
  const lines = [`${files.join(', ')}: ${rows} rows, ${records} solutions`];
  for (const [title, reasons] of [
    ['rows left out', skipped],
    ['steps left without a label', unlabelled],
  ] as const) {
    if (reasons.size > 0)
      lines.push(`  ${title}: ${[...reasons].map(([reason, n]) => `${reason} ${n}`).join(', ')}`);
  }
  if (firstBadRow !== undefined) lines.push(`  first bad row: ${firstBadRow}`);
  return lines;
}

async function tokenizerOf({ model, prompt }: SftRunConfig): Promise<VerdictTokenizer> {
  return verdictTokenizer(prompt, await configuredTokenizer(model));
}

function measureLengths(
  records: readonly StepRecord[],
  tokenizer: VerdictTokenizer,
  maxLength: number,
): LengthStats {
  const lengths: number[] = [];
  let stepsTooLong = 0;
  for (const record of records) {
    const whole = tokenizer.solution(record);
    lengths.push(whole.trunk.ids.length);
    if (whole.trunk.ids.length > 0) stepsTooLong += tokenizer.solution(record, { maxLength }).tooLong;
  }
  lengths.sort((a, b) => a - b);
  return {
    tokens: lengths.reduce((sum, length) => sum + length, 0),
    median: lengths[lengths.length >> 1] ?? 0,
    longest: lengths.at(-1) ?? 0,
    stepsTooLong,
  };
}

function share(count: number, whole: number): string {
  return whole === 0 ? String(count) : `${count} (${((100 * count) / whole).toFixed(1)} %)`;
}
