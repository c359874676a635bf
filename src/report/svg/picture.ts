/** A picture that stands alone in a file: named rows of numbers over one axis, for papers and pages that are no report. */
import { type Html, html } from '../html.js';
import { round, ticks } from './axes.js';

/** A row of a picture: single values, their mean, and its interval, each where there is one. */
interface PictureRow {
  readonly name: string;
  readonly values?: readonly number[];
  readonly mean?: number | undefined;
  readonly interval?: readonly [low: number, high: number] | undefined;
}

export interface PictureBlock {
  /** Under the axis. */
  readonly title: string;
  readonly rows: readonly PictureRow[];
  readonly format: (value: number) => string;
  /** Whether the values are shares, whose axis stays within 0 and 1. */
  readonly isShare?: boolean;
  /** A line to compare with, such as 0 of differences. */
  readonly line?: number;
}

const [NUMBERS, ROW, AXIS, EDGE] = [500, 24, 46, 14];

/** Approximate width of a letter; nothing measures text in a file. */
const LETTER = 7.2;

/** Colours of reports, by the reader's system; an image in a page has no style but its own. */
const STYLE = `text{font:13px system-ui,sans-serif;fill:#1a1d21}.soft{fill:#5a616b}line{stroke:#dddfe2}.zero{stroke:#5a616b;stroke-dasharray:4 3}
.interval{stroke:#2460c8;stroke-width:2.5}.mean{fill:#2460c8}.value{fill:none;stroke:#2460c8}
@media(prefers-color-scheme:dark){text{fill:#e6e8eb}.soft{fill:#a3abb6}line{stroke:#31363f}.zero{stroke:#a3abb6}.interval{stroke:#7dabff}.mean{fill:#7dabff}.value{stroke:#7dabff}}`;

/** An SVG file: the blocks below each other, each with an axis of its own. Blocks without a number are left out. */
export function picture(title: string, blocks: readonly PictureBlock[]): string {
  let top = 8;
  const longest = Math.max(0, ...blocks.flatMap(({ rows }) => rows.map(({ name }) => name.length)));
  const names = Math.ceil(longest * LETTER) + 24;
  const width = names + NUMBERS;
  const drawn = blocks
    .filter(({ rows }) => rows.some((row) => numbersOf(row).length > 0))
    .map((own) => {
      const at = top;
      top += own.rows.length * ROW + AXIS;
      return block(own, at, names);
    });
  return `${html`<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${top}" viewBox="0 0 ${width} ${top}" role="img"><title>${title}</title><style>${STYLE}</style>${drawn}</svg>`.text}\n`;
}

function block({ title, rows, format, isShare, line }: PictureBlock, top: number, names: number): Html {
  const all = [...rows.flatMap(numbersOf), ...(line === undefined ? [] : [line])];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const margin = (high - low) * 0.04 || Math.abs(low) * 0.04 || 1;
  const [least, most] = isShare ? [0, 1] : [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY];
  const [min, max] = [Math.max(least, low - margin), Math.min(most, high + margin)];
  const x = (value: number) => round(names + ((value - min) / (max - min)) * (NUMBERS - EDGE));
  const bottom = top + rows.length * ROW;
  return html`<g>${ticks({ min, max }).map(
    (value) =>
      html`<line x1="${x(value)}" x2="${x(value)}" y1="${top}" y2="${bottom}"/><text class="soft" x="${x(value)}" y="${bottom + 16}" text-anchor="middle">${format(value)}</text>`,
  )}${line !== undefined && html`<line class="zero" x1="${x(line)}" x2="${x(line)}" y1="${top}" y2="${bottom}"/>`}
<text class="soft" x="${names + (NUMBERS - EDGE) / 2}" y="${bottom + 34}" text-anchor="middle">${title}</text>
${rows.map(({ name, values = [], mean, interval }, i) => {
  const y = top + (i + 0.5) * ROW;
  return html`<text x="${names - 12}" y="${y + 4}" text-anchor="end">${name}</text>${interval && html`<line class="interval" x1="${x(interval[0])}" x2="${x(interval[1])}" y1="${y}" y2="${y}"/>`}${values.map((value) => html`<circle class="value" cx="${x(value)}" cy="${y}" r="3.5"/>`)}${mean !== undefined && html`<circle class="mean" cx="${x(mean)}" cy="${y}" r="4.5"><title>${name}: ${format(mean)}</title></circle>`}\n`;
})}</g>`;
}

function numbersOf({ values = [], mean, interval }: PictureRow): number[] {
  return [...values, ...(mean === undefined ? [] : [mean]), ...(interval ?? [])];
}
