/** The table of a sweep: means over seeds with every seed as a dot, and paired differences with their intervals. */
import { intervalReading } from '../../eval/statistics/student.js';
import { number, percent, points } from '../format.js';
import { type Html, html } from '../html.js';
import { type SweepColumn, sweepColumns } from '../sweep-table.js';
import { isObject } from '../values.js';
import type { Section } from './section.js';

export function sweepSection(summary: unknown): Section {
  const columns = sweepColumns(summary);
  const unfinished = isObject(summary) && Array.isArray(summary.unfinished) ? summary.unfinished.length : 0;
  const compared = columns.filter(({ differences }) => differences.length > 0);
  return {
    id: 'sweep',
    title: 'The sweep',
    body:
      columns.length > 0
        ? html`${columns.map(column)}${compared.length > 0 && paired(compared)}${unfinished > 0 && html`<p class="warning">${unfinished === 1 ? '1 run has not ended and is' : `${unfinished} runs have not ended and are`} in no mean.</p>`}`
        : undefined,
    absent: 'sweep.json is written by steptrain sweep into the folder of its runs.',
  };
}

/** Shares are shown in percent. */
export const valueFormat = ({ isShare }: SweepColumn) => (isShare ? percent : number);
export const differenceFormat = ({ isShare }: SweepColumn) => (isShare ? points : signed);
const signed = (value: number) => (value > 0 ? `+${number(value)}` : number(value));

function column(of: SweepColumn): Html {
  const all = of.arms.flatMap(({ values }) => values.map(([, value]) => value));
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const shown = (value: number) => valueFormat(of)(value);
  const place = (value: number) =>
    `${(2 + 96 * (high === low ? 0.5 : (value - low) / (high - low))).toFixed(2)}%`;
  return html`<h3>${of.title}</h3><div class="scroll" tabindex="0" role="region" aria-label="${of.title}"><table class="bars"><thead><tr><th scope="col">Arm</th><th scope="col" class="n">mean${of.isShare && ', %'}</th><th scope="col" class="n">± s. d.</th><th scope="col" class="n">seeds</th><td></td></tr></thead><tbody>${of.arms.map(
    ({ name, values, mean, deviation }) =>
      html`<tr><th scope="row">${name}</th><td class="n">${mean === undefined ? '–' : shown(mean)}</td><td class="n">${deviation === undefined ? '–' : shown(deviation)}</td><td class="n">${values.length}</td><td class="bar"><svg width="100%" height="16" role="img" aria-label="${values.map(([seed, value]) => `seed ${seed}: ${shown(value)}`).join(', ')}"><line class="ideal" x1="0" x2="100%" y1="8" y2="8"/>${values.map(([seed, value]) => html`<circle class="dot c1" cx="${place(value)}" cy="8" r="4.5"><title>seed ${seed}: ${shown(value)}</title></circle>`)}${mean !== undefined && html`<rect class="meanline" x="${place(mean)}" width="2" height="16"/>`}</svg></td></tr>`,
  )}</tbody></table></div>`;
}

/** A table for every column: a row for each pair, with its interval against a line at 0. */
function paired(columns: readonly SweepColumn[]): Html {
  return html`<h3>Paired differences</h3><p class="hint">Seed by seed, with Student’s 95 % interval over seeds; one that contains 0 shows no difference. Nothing is corrected for the number of comparisons.</p>${columns.map(pairedColumn)}`;
}

function pairedColumn(of: SweepColumn): Html {
  const shown = (value: number) => differenceFormat(of)(value);
  const ends = of.differences.flatMap(({ mean = 0, interval = [] }) => [mean, ...interval].map(Math.abs));
  const reach = Math.max(...ends) || 1;
  const place = (value: number) => `${(50 + (48 * value) / reach).toFixed(2)}%`;
  return html`<h4>${of.title}</h4><div class="scroll" tabindex="0" role="region" aria-label="Paired differences of ${of.title}"><table class="bars"><thead><tr><th scope="col">Arms</th><th scope="col" class="n">mean</th><th scope="col" class="n">95 % interval</th><th scope="col">reading</th><td></td></tr></thead><tbody>${of.differences.map(
    ({ name, n, mean, interval }) => {
      const range = interval?.map(shown).join(' to ');
      return html`<tr><th scope="row">${name}</th><td class="n">${mean === undefined ? '–' : shown(mean)}</td><td class="n">${range ?? '–'}</td><td class="reading">${intervalReading({ n, ...(interval ? { interval: [...interval] as [number, number] } : {}) })}</td><td class="bar"><svg width="100%" height="16" role="img" aria-label="${range ?? 'no interval'}"><line class="ideal" x1="50%" x2="50%" y1="0" y2="16"/>${interval && html`<line class="interval" x1="${place(interval[0])}" x2="${place(interval[1])}" y1="8" y2="8"/>`}${mean !== undefined && html`<circle class="dot c1" cx="${place(mean)}" cy="8" r="4.5"/>`}</svg></td></tr>`;
    },
  )}</tbody></table></div>`;
}
