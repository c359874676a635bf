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

/** The text of a time that its column has in UTC, with the offset; any other value as it is. */
export function withOffset(value: unknown, element: SchemaElement | undefined): unknown {
  if (typeof value !== 'string' || element === undefined) return value;
  const { logical_type: logical, converted_type: converted } = element;
  const isUtc =
    logical?.type === 'TIMESTAMP'
      ? logical.isAdjustedToUTC
      : converted === 'TIMESTAMP_MILLIS' || converted === 'TIMESTAMP_MICROS';
  return isUtc ? `${value}+00:00` : value;
}

/** @param digits of a second that a unit of `time` is */
function timeText(time: bigint, digits: 3 | 6 | 9): string {
  const day = DAY * 10n ** BigInt(digits - 3);
  const within = ((time % day) + day) % day;
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
  return `${dateText((time - within) / day)} ${time24}${fraction === '' ? '' : `.${fraction}`}`;
}

function dateText(days: bigint): string {
  return new Date(Number(days * DAY)).toISOString().replace(/T.*$/, '');
}
