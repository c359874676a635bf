/**
 * Records as columns of numbers, so that a checkpoint holds a rollout batch in binary: JSON would be several times as
 * long, and would lose numbers that are not finite.
 */

/** Rows by field. `bare` fields are neither numbers nor lists of numbers or records; a checkpoint has them as JSON. */
export interface Columns {
  readonly rows: number;
  readonly fields: Readonly<Record<string, Field>>;
}

type Field =
  /** `present`: 0 where the row lacks it, 1 a number, 2 null. */
  | { readonly kind: 'numbers'; readonly values: Float64Array; readonly present?: Float64Array }
  | { readonly kind: 'lists'; readonly lengths: Float64Array; readonly values: Float64Array }
  | { readonly kind: 'records'; readonly lengths: Float64Array; readonly values: Columns }
  | { readonly kind: 'bare'; readonly values: readonly unknown[] };

type Row = Readonly<Record<string, unknown>>;

/** The inverse is {@link unpackRows}. Fields that a row lacks or that are undefined stay absent. */
export function packRows(rows: readonly object[]): Columns {
  const names = new Set(rows.flatMap((row) => Object.keys(row)));
  const fields = Array.from(names, (name) => {
    const values = rows.map((row) => (row as Row)[name]);
    return [name, packField(values)] as const;
  });
  return { rows: rows.length, fields: Object.fromEntries(fields) };
}

function packField(values: readonly unknown[]): Field {
  if (values.every((value) => value === undefined || value === null || typeof value === 'number')) {
    const numbers = Float64Array.from(values, (value) => (value as number | null | undefined) ?? 0);
    if (!values.includes(undefined) && !values.includes(null)) return { kind: 'numbers', values: numbers };
    // A step without a label has null there, which is not the same as nothing.
    const present = Float64Array.from(values, (value) => (value === undefined ? 0 : value === null ? 2 : 1));
    return { kind: 'numbers', values: numbers, present };
  }
  if (!values.every(Array.isArray)) return { kind: 'bare', values };
  const lists = values as readonly (readonly unknown[])[];
  const lengths = Float64Array.from(lists, ({ length }) => length);
  const items = lists.flat();
  if (items.every((item) => typeof item === 'number'))
    return { kind: 'lists', lengths, values: Float64Array.from(items) };
  if (items.every((item) => typeof item === 'object' && item !== null && !Array.isArray(item)))
    return { kind: 'records', lengths, values: packRows(items as object[]) };
  return { kind: 'bare', values };
}

export function unpackRows<T>({ rows, fields }: Columns): T[] {
  const made = Array.from({ length: rows }, (): Record<string, unknown> => ({}));
  for (const [name, field] of Object.entries(fields)) {
    const values = unpackField(field);
    made.forEach((row, i) => {
      if (values[i] !== undefined) row[name] = values[i];
    });
  }
  return made as T[];
}

function unpackField(field: Field): readonly unknown[] {
  switch (field.kind) {
    case 'bare':
      return field.values.map((value) => value ?? undefined);
    case 'numbers':
      return Array.from(field.values, (value, i) => {
        const present = field.present?.[i] ?? 1;
        return present === 0 ? undefined : present === 2 ? null : value;
      });
    case 'lists':
      return cut(Array.from(field.values), field.lengths);
    case 'records':
      return cut(unpackRows(field.values), field.lengths);
  }
}

function cut<T>(items: readonly T[], lengths: Float64Array): T[][] {
  let at = 0;
  return Array.from(lengths, (length) => {
    at += length;
    return items.slice(at - length, at);
  });
}
