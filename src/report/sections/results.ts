/** The tables of the final evaluation. */

import { breakdownRows, evalTable, keptLine } from '../../eval/reports/report-table.js';
import { correctionNotes, correctionTables } from '../../eval/solving/corrections.js';
import { solvedRows } from '../../eval/solving/run-report.js';
import type { CollectedRun } from '../collect.js';
import { type Html, html } from '../html.js';
import type { Section } from './section.js';

export function results(run: CollectedRun): Section {
  const parts = [
    ...(run.report ? [verdictTable(run.report)] : []),
    ...(run.solved ? solvedTables(run.solved) : []),
  ];
  return {
    id: 'results',
    title: 'Results',
    body: parts.length > 0 ? html`${parts}` : undefined,
    absent: 'eval.json is written when the final evaluation has ended.',
  };
}

function verdictTable(report: NonNullable<CollectedRun['report']>): Html {
  const { main, all, notes, words } = evalTable(report);
  // Training changes the verdicts alone, so their table comes first; all metrics are for a second look.
  return html`${words && words.main.length > 0 && html`${table(...headed(words.main))}${notesOf([keptLine(report)])}`}
${main.length > 0 && table(...headed(main))}${breakdownRows(report).map((rows) => table(...headed(rows)))}
${words && words.all.length > 0 && html`<details><summary>Every metric of the verdicts alone</summary>${table(...headed(words.all))}</details>`}
${all.length > 0 && html`<details><summary>Every metric, of all ${report.metrics.n.toLocaleString('en-US')} ${report.unit ?? 'steps'}</summary>${table(...headed(all))}</details>`}
${notesOf(notes.filter((line) => !line.startsWith('Warning: ')))}`;
}

function solvedTables(solved: NonNullable<CollectedRun['solved']>): Html[] {
  const { corrections } = solved;
  if (!corrections) return [table(...headed(solvedRows(solved)))];
  return [
    ...correctionTables(corrections).map((rows) => table(...headed(rows))),
    notesOf(correctionNotes(corrections)),
  ];
}

const notesOf = (lines: readonly string[]): Html =>
  html`<div class="notes">${lines.map((line) => html`<p>${line}</p>`)}</div>`;

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
