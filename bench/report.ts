/** Tables for the terminal. Times are medians over the trials with their range; a ratio is rival / ours of the medians. */
import Table from 'cli-table3';
import type { GenerateCase, RivalCase, RlCase, StepCase, TrainerCase } from './cases.js';
import { BARS, type Contention, type ContentionResult } from './contention.js';
import { rlTokens, tokensOf } from './counted-cases.js';
import { type Limits, shareOfLimit } from './limits.js';
import type { CaseResult, Measured } from './pairs.js';
import type { RuntimeResult } from './runtime.js';
import type { Spread } from './statistics.js';

const STYLE = { head: [], border: [], compact: true };

/** A column of the table: a cell for one contestant's metrics, beside ours where it is the rival's. */
interface Column {
  readonly head: string;
  cell(
    item: RivalCase,
    measured: Measured,
    base: Measured | undefined,
    results: readonly CaseResult[],
  ): string;
}

export function rivalTable(title: string, results: readonly CaseResult[], limits: Limits): string {
  const columns = columnsFor(results, limits);
  const table = new Table({ head: [title, ...columns.map(({ head }) => head)], style: STYLE });
  const notes: string[] = [];
  for (const { item, ours, rival } of results) {
    const row = (who: string, measured: Measured | string, base?: Measured) => {
      if (typeof measured === 'string') notes.push(`${item.name}, ${who || 'ours'}: ${measured}`);
      table.push([
        who === '' ? item.name : `  rival: ${who}`,
        ...columns.map(({ cell }) =>
          typeof measured === 'string' ? '–' : cell(item, measured, base, results),
        ),
      ]);
    };
    row('', ours);
    for (const [setting, measured] of Object.entries(rival)) {
      row(setting, measured, typeof ours === 'string' ? undefined : ours);
    }
  }
  return [table.toString(), ...notes].join('\n');
}

function columnsFor(results: readonly CaseResult[], limits: Limits): readonly Column[] {
  const [first] = results;
  const suite = first?.item.suite;
  // A group of one case has a process of its own, and so the memory of that case alone.
  const isStep = suite === 'step' || suite === 'trainer' || (suite === 'rl' && results.length === 1);
  const columns: Column[] = [
    { head: 'ms, median (range)', cell: (_, { spread }) => milliseconds(spread) },
    {
      head: first && isOfTokens(first.item) ? 'tokens/s' : suite === 'kernels' ? 'GB/s' : 'GFLOP/s',
      cell: (item, { spread }) => (work(item) / spread.median).toFixed(0),
    },
    {
      // Of a training step: what is called MFU, against the measured peak instead of the printed one.
      head: 'of limit',
      cell: (item, { spread }) => percent(shareOfLimit(item, spread.median, limits)),
    },
    { head: 'rival/ours', cell: (_, { spread }, base) => times(spread.median, base?.spread.median) },
  ];
  if (results.some(({ item }) => 'rank' in item && item.rank > 0) && !isStep && suite !== 'rl') {
    columns.push({
      head: 'LoRA adds',
      cell: (item, { spread }, base) => (base ? '' : added(item, spread, results)),
    });
  }
  if (results.some(({ item }) => item.suite === 'rl' && item.part === 'update apart'))
    columns.push(
      { head: 'tokens', cell: (item) => (item.suite === 'rl' ? `${rlTokens(item)}` : '') },
      { head: 'apart/branches', cell: (item, { spread }) => saved(item, spread, results) },
    );
  if (isStep) {
    columns.push(
      { head: 'load', cell: (_, { load }) => load?.median.toFixed(1) ?? '' },
      { head: 'peak GiB', cell: (_, { peakBytes }) => (peakBytes.median / 2 ** 30).toFixed(2) },
      {
        head: 'peak ours/rival',
        cell: (_, { peakBytes }, base) => (base ? times(base.peakBytes.median, peakBytes.median) : ''),
      },
    );
  }
  return columns;
}

function isOfTokens(item: RivalCase): item is StepCase | GenerateCase | TrainerCase {
  return ['step', 'trainer', 'prefill', 'decode'].includes(item.suite);
}

/** In the unit of the rate's column. */
function work(item: RivalCase): number {
  if (isOfTokens(item)) return tokensOf(item);
  return (item.suite === 'kernels' ? item.bytes : item.flops) / 1e9;
}

/** What the pairs cost on top of the same case without any. */
function added(item: RivalCase, spread: Spread, results: readonly CaseResult[]): string {
  if (!('rank' in item) || item.rank === 0) return '';
  const shape = (other: object) => JSON.stringify({ ...other, name: '', rank: 0, flops: 0, bytes: 0 });
  const plain = results.find(
    ({ item: other }) => 'rank' in other && other.rank === 0 && shape(other) === shape(item),
  )?.ours;
  return plain && typeof plain !== 'string' ? percent(spread.median / plain.spread.median - 1) : '';
}

/** How many times as long the same solutions take apart. */
function saved(item: RivalCase, { median }: Spread, results: readonly CaseResult[]): string {
  if (item.suite !== 'rl' || item.part !== 'update') return '';
  const shape = ({ prompts, generations, prompt, newTokens }: RlCase) =>
    [prompts, generations, prompt, newTokens].join();
  const apart = results.find(
    ({ item: other }) =>
      other.suite === 'rl' && other.part === 'update apart' && shape(other) === shape(item),
  )?.ours;
  return apart && typeof apart !== 'string' ? times(apart.spread.median, median) : '';
}

export function limitsLine({ flops, bytes, readBytes }: Limits): string {
  const products = Object.entries(flops).map(
    ([dtype, rate]) => `${(rate / 1e9).toFixed(0)} GFLOP/s in ${dtype}`,
  );
  return `limits measured here: ${[...products, ...(bytes > 0 ? [`${(bytes / 1e9).toFixed(0)} GB/s copied`] : []), `${(readBytes / 1e9).toFixed(0)} GB/s read`].join(', ')}`;
}

export function runtimeTable(suite: string, results: readonly RuntimeResult[]): string {
  const table = new Table({ head: [suite, 'metric', 'median (range)'], style: STYLE });
  const notes: string[] = [];
  for (const { name, metrics, error } of results) {
    if (error !== undefined) notes.push(`${name}: ${error}`);
    for (const [metric, values] of Object.entries(metrics)) table.push([name, metric, range(values)]);
  }
  return [table.toString(), ...notes].join('\n');
}

/** A row a number of threads and of busy processes; `!` marks what is beyond a bar. */
export function contentionTable({ item, results, errors }: ContentionResult): string {
  const head = [`${item.name}, ${item.dtype}`, 'ours, ms', 'loss', 'rival, ms', 'loss', 'ours/rival'];
  const table = new Table({ head, style: STYLE });
  for (const result of results) {
    const { threads, busy, seconds, loss } = result;
    const side = (who: 'ours' | 'rival') => [
      seconds[who] ? milliseconds(seconds[who]) : '–',
      loss[who] && busy > 0 ? `${times(loss[who], 1)}${beyond(result, who) ? ' !' : ''}` : '–',
    ];
    const against = loss.ours && loss.rival && busy > 0 ? loss.ours / loss.rival : undefined;
    table.push([
      `${threads} thread${threads === 1 ? '' : 's'} beside ${busy} busy`,
      ...side('ours'),
      ...side('rival'),
      against === undefined ? '–' : `${times(against, 1)}${against > BARS.besideRival ? ' !' : ''}`,
    ]);
  }
  return [table.toString(), ...errors].join('\n');
}

function beyond({ threads, busy, loss }: Contention, who: 'ours' | 'rival'): boolean {
  return who === 'ours' && threads === 2 && busy === 2 && (loss.ours ?? 0) > BARS.twoOnTwo;
}

function times(numerator: number, denominator: number | undefined): string {
  return denominator === undefined ? '' : `${(numerator / denominator).toFixed(2)}×`;
}

function percent(share: number | undefined): string {
  return share === undefined ? '–' : `${(100 * share).toFixed(0)} %`;
}

function milliseconds({ min, median, max }: Spread): string {
  return range({ min: min * 1000, median: median * 1000, max: max * 1000 });
}

function range({ min, median, max }: Spread): string {
  return min === max ? number(median) : `${number(median)} (${number(min)} – ${number(max)})`;
}

function number(value: number): string {
  return value >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
