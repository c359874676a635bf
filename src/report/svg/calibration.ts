/** Probability of "right" against the share of steps that are. */
import type { Calibration } from '../../eval/statistics/calibration.js';
import { percent } from '../format.js';
import { type Html, html } from '../html.js';
import { line, plot } from './axes.js';

const whole = (value: number) => percent(value, 0);

/** Dots below the diagonal: too sure that steps are right. The area of a dot is its number of steps. */
export function calibrationPlot({ bins }: Calibration): Html {
  const most = Math.max(1, ...bins.map(({ n }) => n));
  const axis = { min: 0, max: 1, format: whole };
  const words = bins.map(
    ({ probability, positive_share, n }) => `${whole(probability)} % → ${whole(positive_share)} % of ${n}`,
  );
  return plot(
    {
      x: { ...axis, title: 'mean probability of “right”, %' },
      y: { ...axis, title: 'share that is right, %' },
      label: `Calibration: ${words.join(', ')}`,
    },
    ({ x, y }) => [
      html`<line class="ideal" x1="${x(0)}" y1="${y(0)}" x2="${x(1)}" y2="${y(1)}"/>`,
      html`<path class="line c1" d="${line(bins.map((bin) => [x(bin.probability), y(bin.positive_share)]))}"/>`,
      ...bins.map(
        ({ n, probability, positive_share }) =>
          html`<circle class="dot c1" cx="${x(probability)}" cy="${y(positive_share)}" r="${(2.5 + 8 * Math.sqrt(n / most)).toFixed(1)}"><title>${whole(probability)} % predicted, ${whole(positive_share)} % right, ${n} steps</title></circle>`,
      ),
    ],
  );
}
