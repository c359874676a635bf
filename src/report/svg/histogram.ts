/** A histogram of one or two kinds of values. */
import { type Html, html } from '../html.js';
import { type Axis, plot } from './axes.js';
import { legend } from './lines.js';

export interface Counted {
  readonly name: string;
  readonly values: readonly number[];
}

const BINS = 20;

/** Bars of the kinds stand side by side, each as a share of its own kind. */
export function histogram(
  kinds: readonly Counted[],
  {
    title,
    label,
    min,
    max,
    format,
  }: Omit<Axis, 'min' | 'max'> & { readonly label: string; readonly min?: number; readonly max?: number },
): Html {
  const all = kinds.flatMap(({ values }) => values);
  let [low, high] = [min ?? least(all), max ?? largest(all)];
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const shares = kinds.map(({ values }) => {
    const counts = new Array<number>(BINS).fill(0);
    for (const value of values) {
      const bin = Math.min(BINS - 1, Math.max(0, Math.floor(((value - low) / (high - low)) * BINS)));
      counts[bin] = (counts[bin] as number) + 1;
    }
    return counts.map((count) => ({ count, share: values.length === 0 ? 0 : count / values.length }));
  });
  const top = Math.max(0.01, ...shares.flat().map(({ share }) => share));
  const width = (high - low) / BINS;
  const drawn = plot(
    {
      x: { min: low, max: high, title, ...(format ? { format } : {}) },
      y: {
        min: 0,
        max: top * 1.05,
        title: 'share, %',
        format: (value) => String(Math.round(value * 1000) / 10),
      },
      label,
    },
    ({ x, y }) =>
      shares.flatMap((bins, kind) =>
        bins.flatMap(({ count, share }, b) => {
          if (count === 0) return [];
          const from = x(low + b * width);
          const room = x(low + (b + 1) * width) - from - 1;
          const own = room / kinds.length;
          return html`<rect class="area c${kind + 1} p${kind + 1}" x="${(from + 0.5 + kind * own).toFixed(1)}" y="${y(share)}" width="${own.toFixed(1)}" height="${(y(0) - y(share)).toFixed(1)}"><title>${kinds[kind]?.name}: ${count}</title></rect>`;
        }),
      ),
  );
  return kinds.length > 1
    ? html`${drawn}${legend(
        kinds.map(({ name, values }) => `${name} (${values.length.toLocaleString('en-US')})`),
        'box',
      )}`
    : drawn;
}

// Spreading a long list into Math.min overflows the stack.
const least = (values: readonly number[]) =>
  values.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
const largest = (values: readonly number[]) =>
  values.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
