/** The table of a sweep: means over seeds with every seed as a dot, and paired differences with their intervals. */
import { number, percent } from '../format.js';
import { type Html, html } from '../html.js';
import { isObject, numbersIn } from '../values.js';
import type { Section } from './section.js';

/** What of sweep.json is shown; whatever else stands there is passed over. */
export function sweepSection(summary: unknown): Section {
  const arms = isObject(summary) && Array.isArray(summary.arms) ? summary.arms.filter(isObject) : [];
  const differences =
    isObject(summary) && Array.isArray(summary.differences) ? summary.differences.filter(isObject) : [];
  const unfinished = isObject(summary) && Array.isArray(summary.unfinished) ? summary.unfinished.length : 0;
  const titles = [...new Set(arms.flatMap(({ columns }) => (isObject(columns) ? Object.keys(columns) : [])))];
  return {
    id: 'sweep',
    title: 'The sweep',
    body:
      arms.length > 0
        ? html`${titles.map((title) => column(title, arms))}${differences.length > 0 && paired(differences)}${unfinished > 0 && html`<p class="warning">${unfinished} runs have not ended and are in no mean.</p>`}`
        : undefined,
    absent: 'sweep.json is written by steptrain sweep into the folder of its runs.',
  };
}

type Row = Readonly<Record<string, unknown>>;

function column(title: string, arms: readonly Row[]): Html {
  const rows = arms.map(({ arm, columns }) => {
    const own = isObject(columns) && isObject(columns[title]) ? columns[title] : {};
    return {
      arm: String(arm),
      values: Object.entries(numbersIn(own.values)),
      ...numbersIn({ mean: own.mean, deviation: own.deviation }),
    } as {
      readonly arm: string;
      readonly values: readonly (readonly [string, number])[];
      readonly mean?: number;
      readonly deviation?: number;
    };
  });
  const all = rows.flatMap(({ values }) => values.map(([, value]) => value));
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const shown = (value: number) => (low >= 0 && high <= 1 ? percent(value) : number(value));
  const place = (value: number) =>
    `${(2 + 96 * (high === low ? 0.5 : (value - low) / (high - low))).toFixed(2)}%`;
  return html`<h3>${title}</h3><div class="scroll" tabindex="0" role="region" aria-label="${title}"><table class="bars"><thead><tr><th scope="col">Arm</th><th scope="col" class="n">mean${low >= 0 && high <= 1 && ', %'}</th><th scope="col" class="n">± s. d.</th><th scope="col" class="n">seeds</th><td></td></tr></thead><tbody>${rows.map(
    ({ arm, values, mean, deviation }) =>
      html`<tr><th scope="row">${arm}</th><td class="n">${mean === undefined ? '–' : shown(mean)}</td><td class="n">${deviation === undefined ? '–' : shown(deviation)}</td><td class="n">${values.length}</td><td class="bar"><svg width="100%" height="16" role="img" aria-label="${values.map(([seed, value]) => `seed ${seed}: ${shown(value)}`).join(', ')}"><line class="ideal" x1="0" x2="100%" y1="8" y2="8"/>${values.map(([seed, value]) => html`<circle class="dot c1" cx="${place(value)}" cy="8" r="4.5"><title>seed ${seed}: ${shown(value)}</title></circle>`)}${mean !== undefined && html`<rect class="meanline" x="${place(mean)}" width="2" height="16"/>`}</svg></td></tr>`,
  )}</tbody></table></div>`;
}

function paired(differences: readonly Row[]): Html {
  return html`<h3>Paired differences</h3><div class="scroll" tabindex="0" role="region" aria-label="Paired differences"><table><thead><tr><th scope="col">Arm</th><th scope="col">against</th><th scope="col">of</th><th scope="col" class="n">mean</th><th scope="col" class="n">95 % interval</th></tr></thead><tbody>${differences.map(
    ({ arm, to, column: of, mean, interval }) =>
      html`<tr><th scope="row">${String(arm)}</th><td>${String(to)}</td><td>${String(of)}</td><td class="n">${typeof mean === 'number' ? number(mean) : '–'}</td><td class="n">${Array.isArray(interval) ? interval.map((end) => number(Number(end))).join(' to ') : '–'}</td></tr>`,
  )}</tbody></table></div>`;
}
