/** The table of a sweep: means over seeds with every seed as a dot, and paired differences with their intervals. */
import { intervalReading } from '../../eval/student.js';
import { number, percent, points } from '../format.js';
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
        ? html`${titles.map((title) => column(title, arms))}${differences.length > 0 && paired(differences, (title) => isShare(valuesOf(title, arms)))}${unfinished > 0 && html`<p class="warning">${unfinished} runs have not ended and are in no mean.</p>`}`
        : undefined,
    absent: 'sweep.json is written by steptrain sweep into the folder of its runs.',
  };
}

type Row = Readonly<Record<string, unknown>>;

/** Shares are shown in percent. */
const isShare = (values: readonly number[]) => values.every((value) => value >= 0 && value <= 1);

function valuesOf(title: string, arms: readonly Row[]): number[] {
  return arms.flatMap(({ columns }) => {
    const own = isObject(columns) && isObject(columns[title]) ? columns[title] : {};
    return Object.values(numbersIn(own.values));
  });
}

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
  const shown = (value: number) => (isShare(all) ? percent(value) : number(value));
  const place = (value: number) =>
    `${(2 + 96 * (high === low ? 0.5 : (value - low) / (high - low))).toFixed(2)}%`;
  return html`<h3>${title}</h3><div class="scroll" tabindex="0" role="region" aria-label="${title}"><table class="bars"><thead><tr><th scope="col">Arm</th><th scope="col" class="n">mean${isShare(all) && ', %'}</th><th scope="col" class="n">± s. d.</th><th scope="col" class="n">seeds</th><td></td></tr></thead><tbody>${rows.map(
    ({ arm, values, mean, deviation }) =>
      html`<tr><th scope="row">${arm}</th><td class="n">${mean === undefined ? '–' : shown(mean)}</td><td class="n">${deviation === undefined ? '–' : shown(deviation)}</td><td class="n">${values.length}</td><td class="bar"><svg width="100%" height="16" role="img" aria-label="${values.map(([seed, value]) => `seed ${seed}: ${shown(value)}`).join(', ')}"><line class="ideal" x1="0" x2="100%" y1="8" y2="8"/>${values.map(([seed, value]) => html`<circle class="dot c1" cx="${place(value)}" cy="8" r="4.5"><title>seed ${seed}: ${shown(value)}</title></circle>`)}${mean !== undefined && html`<rect class="meanline" x="${place(mean)}" width="2" height="16"/>`}</svg></td></tr>`,
  )}</tbody></table></div>`;
}

/** For every column a row for each pair, with its interval against a line at 0. */
function paired(differences: readonly Row[], isPercent: (column: string) => boolean): Html {
  const columns = [...new Set(differences.map(({ column: of }) => String(of)))];
  return html`<h3>Paired differences</h3><p class="hint">Seed by seed, with Student’s 95 % interval over seeds; one that contains 0 shows no difference. Nothing is corrected for the number of comparisons.</p>${columns.map(
    (title) =>
      pairedColumn(
        title,
        differences.filter(({ column: of }) => of === title),
        isPercent(title) ? points : signed,
      ),
  )}`;
}

function pairedColumn(title: string, rows: readonly Row[], shown: (value: number) => string): Html {
  const read = rows.map(({ arm, to, n, mean, interval }) => ({
    n: Number(n),
    name: `${String(arm)} − ${String(to)}`,
    mean: typeof mean === 'number' ? mean : undefined,
    ends: Array.isArray(interval) ? interval.map(Number) : [],
  }));
  const reach = Math.max(...read.flatMap(({ mean = 0, ends }) => [mean, ...ends].map(Math.abs))) || 1;
  const place = (value: number) => `${(50 + (48 * value) / reach).toFixed(2)}%`;
  return html`<h4>${title}</h4><div class="scroll" tabindex="0" role="region" aria-label="Paired differences of ${title}"><table class="bars"><thead><tr><th scope="col">Arms</th><th scope="col" class="n">mean</th><th scope="col" class="n">95 % interval</th><th scope="col">reading</th><td></td></tr></thead><tbody>${read.map(
    ({ name, n, mean, ends: [low, high] }) => {
      const interval = low === undefined || high === undefined ? undefined : ([low, high] as const);
      const range = interval?.map(shown).join(' to ');
      return html`<tr><th scope="row">${name}</th><td class="n">${mean === undefined ? '–' : shown(mean)}</td><td class="n">${range ?? '–'}</td><td class="reading">${intervalReading({ n, ...(interval ? { interval } : {}) })}</td><td class="bar"><svg width="100%" height="16" role="img" aria-label="${range ?? 'no interval'}"><line class="ideal" x1="50%" x2="50%" y1="0" y2="16"/>${interval && html`<line class="interval" x1="${place(interval[0])}" x2="${place(interval[1])}" y1="8" y2="8"/>`}${mean !== undefined && html`<circle class="dot c1" cx="${place(mean)}" cy="8" r="4.5"/>`}</svg></td></tr>`;
    },
  )}</tbody></table></div>`;
}

const signed = (value: number) => (value > 0 ? `+${number(value)}` : number(value));
