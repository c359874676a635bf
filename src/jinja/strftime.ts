import { unsupported } from './errors.js';

const MONTHS = 'January February March April May June July August September October November December'.split(
  ' ',
);
const DAYS = 'Sunday Monday Tuesday Wednesday Thursday Friday Saturday'.split(' ');
const padded = (value: number, length = 2) => String(value).padStart(length, '0');

const FIELDS: Readonly<Record<string, (now: Date) => string>> = {
  A: (now) => DAYS[now.getDay()] as string,
  B: (now) => MONTHS[now.getMonth()] as string,
  H: (now) => padded(now.getHours()),
  I: (now) => padded(now.getHours() % 12 || 12),
  M: (now) => padded(now.getMinutes()),
  S: (now) => padded(now.getSeconds()),
  Y: (now) => String(now.getFullYear()),
  a: (now) => (DAYS[now.getDay()] as string).slice(0, 3),
  b: (now) => (MONTHS[now.getMonth()] as string).slice(0, 3),
  d: (now) => padded(now.getDate()),
  m: (now) => padded(now.getMonth() + 1),
  p: (now) => (now.getHours() < 12 ? 'AM' : 'PM'),
  y: (now) => padded(now.getFullYear() % 100),
  '%': () => '%',
};

/** Python's `strftime` in the locale C, with the fields that templates use; `%-d` is a number without its zero. */
export function strftime(format: string, now: Date): string {
  return format.replace(/%(-?)([\s\S]?)/g, (all, dash: string, field: string) => {
    const write = Object.hasOwn(FIELDS, field) ? FIELDS[field] : undefined;
    if (write === undefined) throw unsupported(`'${all}' of strftime_now`);
    const text = write(now);
    return dash === '' ? text : text.replace(/^0+(?=\d)/, '');
  });
}
