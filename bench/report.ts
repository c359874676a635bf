/** Tables for the terminal. Times are medians over the trials with their range; a ratio is rival / ours of the medians. */
import Table from 'cli-table3';
import { tokensOf } from './cases.js';
import type { CaseResult, Measured } from './pairs.js';
import type { RuntimeResult } from './runtime.js';
import type { Spread } from './statistics.js';

const STYLE = { head: [], border: [], compact: true };

export function rivalTable(title: string, results: readonly CaseResult[]): string {
  const isStep = results[0]?.item.suite === 'step';
  const peaks = isStep ? ['peak GiB', 'peak ours/rival'] : [];
  const head = [title, 'ms, median (range)', isStep ? 'tokens/s' : 'GFLOP/s', 'rival/ours', ...peaks];
  const table = new Table({ head, style: STYLE });
  const notes: string[] = [];
  for (const { item, ours, rival } of results) {
    const row = (who: string, measured: Measured | string, base?: Measured) => {
      const label = who === '' ? item.name : `  rival: ${who}`;
      if (typeof measured === 'string') {
        notes.push(`${item.name}, ${who || 'ours'}: ${measured}`);
        table.push([label, '–', '–', '–', ...peaks.map(() => '–')]);
        return;
      }
      const work = item.suite === 'step' ? tokensOf(item) : item.flops / 1e9;
      const peak = measured.peakBytes.median;
      table.push([
        label,
        milliseconds(measured.spread),
        (work / measured.spread.median).toFixed(0),
        base ? `${(measured.spread.median / base.spread.median).toFixed(2)}×` : '',
        ...(isStep
          ? [(peak / 2 ** 30).toFixed(2), base ? `${(base.peakBytes.median / peak).toFixed(2)}×` : '']
          : []),
      ]);
    };
    row('', ours);
    for (const [setting, measured] of Object.entries(rival)) {
      row(setting, measured, typeof ours === 'string' ? undefined : ours);
    }
  }
  return [table.toString(), ...notes].join('\n');
}

export function runtimeTable(results: readonly RuntimeResult[]): string {
  const table = new Table({ head: ['runtime', 'figure', 'median (range)'], style: STYLE });
  const notes: string[] = [];
  for (const { name, figures, error } of results) {
    if (error !== undefined) notes.push(`${name}: ${error}`);
    for (const [figure, values] of Object.entries(figures)) table.push([name, figure, range(values)]);
  }
  return [table.toString(), ...notes].join('\n');
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
