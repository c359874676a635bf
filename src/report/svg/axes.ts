/** The frame of a plot: axes with round ticks, grid lines, titles. */
import { type Html, html } from '../html.js';

export interface Axis {
  readonly min: number;
  readonly max: number;
  readonly title: string;
  readonly format?: (value: number) => string;
}

export interface Frame {
  readonly x: Axis;
  readonly y: Axis;
  /** Description of the plot, for screen readers. */
  readonly label: string;
  readonly width?: number;
  readonly height?: number;
}

/** Maps data to positions in the plot. */
export interface Scales {
  readonly x: (value: number) => number;
  readonly y: (value: number) => number;
}

const LEFT = 46;
const RIGHT = 12;
const TOP = 10;
const BOTTOM = 40;

/** A plot with what `marks` draws inside its axes. */
export function plot(
  { x, y, label, width = 380, height = 280 }: Frame,
  marks: (scales: Scales) => Html | readonly Html[],
): Html {
  const scales: Scales = {
    x: (value) => round(LEFT + ((value - x.min) / (x.max - x.min || 1)) * (width - LEFT - RIGHT)),
    y: (value) => round(height - BOTTOM - ((value - y.min) / (y.max - y.min || 1)) * (height - TOP - BOTTOM)),
  };
  const bottom = height - BOTTOM;
  const named = ({ format = String }: Axis, value: number) => format(value);
  return html`<svg class="figure" viewBox="0 0 ${width} ${height}" role="img" aria-label="${label}">
<g class="grid">${ticks(y).map((value) => html`<line x1="${LEFT}" x2="${width - RIGHT}" y1="${scales.y(value)}" y2="${scales.y(value)}"/>`)}</g>
<g class="axis"><line x1="${LEFT}" x2="${width - RIGHT}" y1="${bottom}" y2="${bottom}"/>
${ticks(x).map((value) => html`<text x="${scales.x(value)}" y="${bottom + 16}" text-anchor="middle">${named(x, value)}</text>`)}
${ticks(y).map((value) => html`<text x="${LEFT - 6}" y="${scales.y(value) + 4}" text-anchor="end">${named(y, value)}</text>`)}
<text class="title" x="${(LEFT + width - RIGHT) / 2}" y="${height - 6}" text-anchor="middle">${x.title}</text>
<text class="title" x="12" y="${(TOP + bottom) / 2}" text-anchor="middle" transform="rotate(-90 12 ${(TOP + bottom) / 2})">${y.title}</text></g>
${marks(scales)}</svg>`;
}

/** Three to six round numbers within the axis. */
export function ticks({ min, max }: Pick<Axis, 'min' | 'max'>): number[] {
  const span = max - min;
  // Numbers that differ by rounding alone have no round ones between them.
  if (!(span > 1e-10 * Math.max(Math.abs(min), Math.abs(max)))) return [min];
  const rough = span / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((each) => each * power >= rough * 0.999) as number);
  const found: number[] = [];
  for (let i = Math.ceil(min / step - 1e-9); i * step <= max + step * 1e-9; i++)
    found.push(Number((i * step).toPrecision(12)));
  return found;
}

/** A path through points. */
export function line(points: readonly (readonly [x: number, y: number])[]): string {
  return points.map(([x, y], i) => `${i === 0 ? 'M' : 'L'}${round(x)} ${round(y)}`).join('');
}

export const round = (value: number) => Math.round(value * 10) / 10;
