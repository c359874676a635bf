/** Numbers for people: short, with units, and with the same decimals in a column. */
export { formatBytes as bytes } from '../terminal/progress.js';

/** Four significant digits, thousands separated, a true minus sign. */
export function number(value: number, digits = 4): string {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return minus(exponential(value, digits));
  if (Number.isInteger(value) || size >= 10 ** (digits - 1))
    return minus(Math.round(value).toLocaleString('en-US'));
  return minus(String(Number(value.toPrecision(digits))));
}

/** `12.3`, without the sign that the column's title has. */
export function percent(fraction: number, decimals = 1): string {
  return minus((100 * fraction).toFixed(decimals));
}

/** `+1.2`, `−0.4`: a difference in percentage points. */
export function points(fraction: number): string {
  const text = (100 * Math.abs(fraction)).toFixed(1);
  return `${fraction < 0 && text !== '0.0' ? '−' : '+'}${text}`;
}

export function duration(seconds: number): string {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return hours > 0
    ? `${hours} h ${String(minutes).padStart(2, '0')} min`
    : `${minutes} min ${String(rest).padStart(2, '0')} s`;
}

export function count(amount: number, one: string, many = `${one}s`): string {
  return `${amount.toLocaleString('en-US')} ${amount === 1 ? one : many}`;
}

function exponential(value: number, digits: number): string {
  const [mantissa, exponent] = value.toExponential(digits - 1).split('e');
  return `${Number(mantissa)}e${Number(exponent)}`;
}

const minus = (text: string) => text.replaceAll('-', '−');
