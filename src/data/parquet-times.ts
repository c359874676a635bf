// Dates and times of Parquet as texts, as pandas and `datasets` print them. JavaScript's dates have milliseconds alone.
import type { ParquetParsers, SchemaElement } from 'hyparquet';

const DAY = 86_400_000n;

/** Has the library give texts: `2026-03-01` and `2026-03-01 12:30:00.000001`. */
export const TIME_PARSERS: Partial<ParquetParsers> = {
  dateFromDays: (days) => dateText(BigInt(days)),
  timestampFromMilliseconds: (millis) => timeText(millis, 3),
  timestampFromMicroseconds: (micros) => timeText(micros, 6),
  timestampFromNanoseconds: (nanos) => timeText(nanos, 9),
};

/** The text of a time of day, and of a time that its column has in UTC with the offset; any other value as it is. */
export function timeOf(value: unknown, element: SchemaElement | undefined): unknown {
  if (element === undefined) return value;
  if (typeof value === 'number' || typeof value === 'bigint') {
    const digits = digitsOfDay(element);
    return digits === undefined ? value : clockText(BigInt(value), digits);
  }
  if (typeof value !== 'string') return value;
  const { logical_type: logical, converted_type: converted } = element;
  const isUtc =
    logical?.type === 'TIMESTAMP'
      ? logical.isAdjustedToUTC
      : converted === 'TIMESTAMP_MILLIS' || converted === 'TIMESTAMP_MICROS';
  return isUtc ? `${value}+00:00` : value;
}

/** Digits of a second that the unit of a column of times of day is; undefined for any other column. */
function digitsOfDay({
  logical_type: logical,
  converted_type: converted,
}: SchemaElement): Digits | undefined {
  if (logical?.type === 'TIME') return logical.unit === 'MILLIS' ? 3 : logical.unit === 'MICROS' ? 6 : 9;
  return converted === 'TIME_MILLIS' ? 3 : converted === 'TIME_MICROS' ? 6 : undefined;
}

/** Digits of a second that a unit of time is. */
type Digits = 3 | 6 | 9;

function timeText(time: bigint, digits: Digits): string {
  const day = DAY * 10n ** BigInt(digits - 3);
  const within = ((time % day) + day) % day;
  return `${dateText((time - within) / day)} ${clockText(within, digits)}`;
}

/** @param within since midnight */
function clockText(within: bigint, digits: Digits): string {
  const second = 10n ** BigInt(digits);
  const whole = Number(within / second);
  const clock = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const part = String(within % second)
    .padStart(digits, '0')
    .padEnd(6, '0');
  const fraction = /^0+$/.test(part)
    ? ''
    : part.length === 9 && part.endsWith('000')
      ? part.slice(0, 6)
      : part;
  const time24 = clock.map((each) => String(each).padStart(2, '0')).join(':');
  return `${time24}${fraction === '' ? '' : `.${fraction}`}`;
}

function dateText(days: bigint): string {
  return new Date(Number(days * DAY)).toISOString().replace(/T.*$/, '');
}
