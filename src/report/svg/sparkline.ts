/** A curve as small as a word. */
import { type Html, html } from '../html.js';

const [WIDTH, HEIGHT] = [90, 22];

/** @param values at least two, in their order */
export function sparkline(values: readonly number[], label: string): Html {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const scale = high > low ? (HEIGHT - 4) / (high - low) : 0;
  const points = values.map((value, i) => {
    const x = (i * WIDTH) / (values.length - 1);
    const y = scale === 0 ? HEIGHT / 2 : HEIGHT - 2 - (value - low) * scale;
    return `${x.toFixed(1)} ${y.toFixed(1)}`;
  });
  return html`<svg class="sparkline" width="${WIDTH}" height="${HEIGHT}" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${label}"><title>${label}</title><path class="line c1" d="M${points.join('L')}"/></svg>`;
}
