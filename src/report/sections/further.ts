/** Shows entries of eval.json that no other section shows, in any shape. */
import type { CollectedRun } from '../collect.js';
import { number, percent } from '../format.js';
import { type Html, html } from '../html.js';
import { isShare, nameOf } from '../names.js';
import { isObject } from '../values.js';
import type { Section } from './section.js';

/** Shown by the head of the page, the results and the verdicts, where their kind of eval.json is known. */
const OF_VERDICTS = [
  'method',
  'unit',
  'metrics',
  'metrics_unseen',
  'baselines',
  'baselines_unseen',
  'intervals',
  'intervals_unseen',
  'differences',
  'warnings',
  'calibration',
  'threshold_sweep',
  'processbench',
  'errors',
  'likelihood',
  'words',
  'groups',
];
const OF_PROBLEMS = ['method', 'unit', 'metrics', 'models'];

export function further({ report, solved, evaluation }: CollectedRun): Section {
  const shown = new Set(report ? OF_VERDICTS : solved ? OF_PROBLEMS : []);
  const rest = Object.entries(evaluation).filter(([key]) => !shown.has(key));
  return {
    id: 'further',
    title: 'Further results',
    body:
      rest.length > 0
        ? html`${rest.map(([key, value]) => html`<details class="nested"><summary>${nameOf(key)}</summary>${nested(key, value)}</details>`)}`
        : undefined,
    absent: 'Everything that eval.json holds is shown above.',
  };
}

/** Entries of a list, or rows of a table, that are shown; the rest is counted. */
const MAX_ENTRIES = 50;
/** Levels of a nested value; JSON of any depth may lie in a run directory. */
const MAX_DEPTH = 8;

/** A value of any shape: plain ones as text, objects as pairs, lists of alike objects as a table. */
export function nested(key: string, value: unknown, depth = 0): Html {
  if (Array.isArray(value)) return listOf(key, value, depth);
  if (!isObject(value)) return html`${plain(key, value)}`;
  if (depth >= MAX_DEPTH) return html`… deeper in eval.json`;
  const entries = Object.entries(value);
  if (entries.length === 0) return html`none`;
  const columns = sharedKeys(entries.map(([, child]) => child));
  if (columns) {
    const rows = entries.map(([name, child]) => ({ name: nameOf(name), cells: child as Row }));
    return tableOf(nameOf(key), columns, rows);
  }
  return html`<dl class="pairs">${entries.slice(0, MAX_ENTRIES).map(([name, child]) => html`<dt>${nameOf(name)}</dt><dd>${nested(name, child, depth + 1)}</dd>`)}</dl>${more(entries.length)}`;
}

type Row = Readonly<Record<string, unknown>>;

function listOf(key: string, list: readonly unknown[], depth: number): Html {
  if (list.length === 0) return html`none`;
  if (list.every((each) => !isObject(each) && !Array.isArray(each)))
    return html`${list
      .slice(0, MAX_ENTRIES)
      .map((each) => plain(key, each))
      .join(', ')}${more(list.length)}`;
  const columns = sharedKeys(list);
  if (columns)
    return tableOf(
      nameOf(key),
      columns,
      list.map((cells, i) => ({ name: String(i + 1), cells: cells as Row })),
    );
  if (depth >= MAX_DEPTH) return html`… deeper in eval.json`;
  return html`<ol>${list.slice(0, MAX_ENTRIES).map((each) => html`<li>${nested(key, each, depth + 1)}</li>`)}</ol>${more(list.length)}`;
}

/** The keys of two or more objects that have the same plain values; undefined where they are not alike. */
function sharedKeys(values: readonly unknown[]): readonly string[] | undefined {
  const [first] = values;
  if (values.length < 2 || !isObject(first)) return undefined;
  const keys = Object.keys(first);
  const isAlike = (value: unknown) =>
    isObject(value) &&
    Object.keys(value).join() === keys.join() &&
    Object.values(value).every((cell) => !isObject(cell) && !Array.isArray(cell));
  return keys.length > 0 && values.every(isAlike) ? keys : undefined;
}

function tableOf(
  name: string,
  columns: readonly string[],
  rows: readonly { readonly name: string; readonly cells: Row }[],
): Html {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="${name}"><table><thead><tr><td></td>${columns.map((key) => html`<th scope="col" class="n">${nameOf(key)}</th>`)}</tr></thead>
<tbody>${rows.slice(0, MAX_ENTRIES).map(({ name, cells }) => html`<tr><th scope="row">${name}</th>${columns.map((key) => html`<td class="n">${plain(key, cells[key])}</td>`)}</tr>`)}</tbody></table></div>${more(rows.length)}`;
}

function plain(key: string, value: unknown): string {
  if (typeof value === 'number')
    return isShare(key) && Math.abs(value) <= 1 ? `${percent(value)} %` : number(value);
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (value === null || value === undefined || value === '') return '–';
  return String(value);
}

const more = (count: number): Html | false =>
  count > MAX_ENTRIES &&
  html`<p class="hint">and ${(count - MAX_ENTRIES).toLocaleString('en-US')} more in eval.json</p>`;
