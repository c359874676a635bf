/** The tables of the final evaluation. */
import { evalTable } from '../../eval/report.js';
import { solvedRows } from '../../eval/solving/run-report.js';
import type { CollectedRun } from '../collect.js';
import { number, percent } from '../format.js';
import { type Content, type Html, html } from '../html.js';
import { isShare, nameOf } from '../names.js';
import { isObject } from '../values.js';
import type { Section } from './section.js';

export function results(run: CollectedRun): Section {
  const parts = [
    ...(run.report ? [verdictTable(run.report)] : []),
    ...(run.solved ? [table(...headed(solvedRows(run.solved)))] : []),
    ...Object.entries(run.results).map(([file, value]) => otherResult(file, value)),
  ];
  return {
    id: 'results',
    title: 'Results',
    body: parts.length > 0 ? html`${parts}` : undefined,
    absent: 'eval.json and its like are written when the final evaluation has ended.',
  };
}

function verdictTable(report: NonNullable<CollectedRun['report']>): Html {
  const { rows, notes } = evalTable(report);
  const [titles = [], ...body] = rows;
  return html`${rows.length > 0 && table(titles, body)}
<div class="notes">${notes.filter((line) => !line.startsWith('Warning: ')).map((line) => html`<p>${line}</p>`)}</div>`;
}

function headed([titles = [], ...body]: readonly (readonly string[])[]): [
  readonly string[],
  readonly (readonly string[])[],
] {
  return [titles, body];
}

function table(titles: readonly string[], body: readonly (readonly string[])[]): Html {
  const row = (cells: readonly string[]): Html => {
    const [name = '', ...others] = cells;
    if (others.every((cell) => cell === ''))
      return html`<tr class="part"><th scope="rowgroup" colspan="${cells.length}">${name}</th></tr>`;
    return html`<tr${name === 'F1 macro' && html` class="main"`}><th scope="row">${name}</th>${others.map((cell) => html`<td class="n">${cell.replace(/^-/, '−').replace(/(?<=\d)-(?=\d)/, '–')}</td>`)}</tr>`;
  };
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Results"><table class="results"><thead><tr><th scope="col">${titles[0] ?? ''}</th>${titles.slice(1).map((title) => html`<th scope="col" class="n">${title}</th>`)}</tr></thead><tbody>${body.map(row)}</tbody></table></div>`;
}

/** A file of results whose layout is its method's: nested objects as parts, lists by their length. */
function otherResult(file: string, value: unknown): Html {
  return html`<h3>${file}</h3><div class="scroll" tabindex="0" role="region" aria-label="${file}"><table><tbody>${rowsOf(value, [])}</tbody></table></div>`;
}

const DEEPEST = 4;

function rowsOf(value: unknown, path: readonly string[]): Html[] {
  if (!isObject(value)) return [row(path.at(-1) ?? '', leaf(path, value), path.length)];
  // An estimate with its interval is one row.
  if (typeof value.value === 'number' && Array.isArray(value.interval))
    return [row(path.at(-1) ?? '', estimate(path, value.value, value.interval), path.length)];
  if (path.length > DEEPEST) return [];
  const inner = Object.entries(value).flatMap(([key, child]) => rowsOf(child, [...path, key]));
  const title = path.at(-1);
  return title === undefined
    ? inner
    : [
        html`<tr class="part"><th scope="rowgroup" colspan="2" class="in${path.length}">${nameOf(title)}</th></tr>`,
        ...inner,
      ];
}

const row = (name: string, value: Content, depth: number) =>
  html`<tr><th scope="row" class="in${depth}">${nameOf(name)}</th><td class="n">${value}</td></tr>`;

function leaf(path: readonly string[], value: unknown): string {
  if (typeof value === 'number') return isFraction(path, value) ? `${percent(value)} %` : number(value);
  if (Array.isArray(value))
    return value.length <= 4 && value.every((each) => typeof each === 'number')
      ? value.map((each) => leaf(path, each)).join(' to ')
      : `${value.length} entries`;
  return value === null ? '–' : String(value).slice(0, 200);
}

function estimate(path: readonly string[], value: number, interval: readonly unknown[]): string {
  if (interval.every((end) => end === value)) return leaf(path, value);
  return `${leaf(path, value)} (${interval.map((end) => leaf(path, end)).join(' to ')})`;
}

const isFraction = (path: readonly string[], value: number) =>
  Math.abs(value) <= 1 && path.some(isShare) && !(Number.isInteger(value) && value > 1);
