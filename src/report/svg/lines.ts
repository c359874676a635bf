/** A few lines over a common axis, each with a dash pattern as well as a colour of its own. */
import { type Html, html } from '../html.js';
import { type Axis, line, plot } from './axes.js';

export interface Line {
  readonly name: string;
  readonly points: readonly (readonly [x: number, y: number])[];
}

export interface Mark {
  readonly at: number;
  readonly name: string;
}

export function linePlot(
  lines: readonly Line[],
  {
    x,
    y,
    label,
    marks = [],
  }: { readonly x: Axis; readonly y: Axis; readonly label: string; readonly marks?: readonly Mark[] },
): Html {
  const drawn = plot({ x, y, label }, (scales) => [
    ...marks.map(
      ({ at, name }) =>
        html`<line class="mark" x1="${scales.x(at)}" x2="${scales.x(at)}" y1="${scales.y(y.min)}" y2="${scales.y(y.max)}"><title>${name}</title></line>`,
    ),
    ...lines.map(
      ({ name, points }, i) =>
        html`<path class="line c${i + 1} d${i + 1}" d="${line(points.map(([px, py]) => [scales.x(px), scales.y(py)]))}"><title>${name}</title></path>`,
    ),
  ]);
  return html`${drawn}${legend(lines.map(({ name }) => name))}`;
}

export function legend(names: readonly string[], kind: 'line' | 'box' = 'line'): Html {
  return html`<ul class="legend">${names.map(
    (name, i) =>
      html`<li><svg width="22" height="10" aria-hidden="true">${
        kind === 'line'
          ? html`<path class="line c${i + 1} d${i + 1}" d="M0 5L22 5"/>`
          : html`<rect class="area c${i + 1} p${i + 1}" x="4" width="14" height="10"/>`
      }</svg>${name}</li>`,
  )}</ul>`;
}
