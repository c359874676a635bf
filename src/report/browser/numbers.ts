import type { PlotData } from './data.js';

/** A value of an axis or a legend. */
export function shown(value: number, unit: PlotData['unit'], digits = 4): string {
  if (unit === 'percent') return `${minus(trim((100 * value).toPrecision(Math.min(digits, 3))))}%`;
  if (unit === 'bytes') return bytes(value);
  if (unit === 'seconds') return `${trim(value.toPrecision(3))} s`;
  const size = Math.abs(value);
  if (size >= 1e6) return minus(`${trim((value / 1e6).toPrecision(3))}M`);
  if (size >= 1e4) return minus(`${trim((value / 1e3).toPrecision(3))}k`);
  if (size !== 0 && size < 1e-3) return minus(value.toExponential(1));
  return minus(trim(value.toPrecision(digits)));
}

function bytes(count: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  const power = Math.min(4, Math.max(0, Math.floor(Math.log10(Math.max(1, count)) / 3)));
  return `${trim((count / 1000 ** power).toPrecision(3))} ${units[power]}`;
}

const trim = (text: string) => String(Number(text));
const minus = (text: string) => text.replaceAll('-', '−');
