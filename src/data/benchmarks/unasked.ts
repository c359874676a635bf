// Parts of a row that nobody reads, since a problem alone goes into the template of prompts.
import type { StepRecord } from '../../records/record.js';
import { isRow, type Row } from '../columns.js';

/** Columns for chat templates. */
const COLUMNS = ['system', 'tools', 'chat_template_kwargs'] as const;

/** Names of the columns for chat templates that have a value in the row, and none in its records. */
export function unreadColumns(row: Row, records: readonly Partial<StepRecord>[] = []): readonly string[] {
  const isRead = (column: (typeof COLUMNS)[number]) =>
    records.some((record) =>
      column === 'system'
        ? typeof record.prompt !== 'string' && record.prompt?.some(({ role }) => role === 'system')
        : record[column] !== undefined,
    );
  return COLUMNS.filter((column) => !isEmpty(row[column]) && !isRead(column));
}

/** Names of what stands before the question of a problem's row, such as a system message. */
export function beforeQuestion(row: Row): readonly string[] {
  const messages = Array.isArray(row.prompt) ? row.prompt.filter((message) => isRow(message)) : [];
  const roles = messages.map(({ role, from }) => (role ?? from) as unknown);
  const question = roles.findLastIndex((role) => role === 'user' || role === 'human');
  const before = roles.slice(0, Math.max(0, question));
  const isSystem = (role: unknown) => role === 'system' || role === 'developer';
  return [
    ...(before.some(isSystem) ? ['a system message'] : []),
    ...(before.every(isSystem) ? [] : ['earlier turns']),
  ];
}

function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null) return true;
  if (typeof value === 'string') return /^\s*(?:\{\s*\}|\[\s*\]|null)?\s*$/.test(value);
  return typeof value === 'object' && Object.keys(value).length === 0;
}

/** A sentence where rows have such parts, and one where they have nulls of tables, from the counts of rows by part. */
export function unaskedWarning(counts: ReadonlyMap<string, number> | undefined): string[] {
  const parts = [...(counts ?? [])];
  const isNull = ([part]: (typeof parts)[number]) => part.startsWith('null ');
  const listed = (some: typeof parts) => some.map(([part, rows]) => `${part} (${rows})`).join(', ');
  const [nulls, unread] = [parts.filter(isNull), parts.filter((part) => !isNull(part))];
  return [
    ...(unread.length > 0
      ? [
          `rows have ${listed(unread)}, which is not read: the problem alone goes into the template of prompts`,
        ]
      : []),
    ...(nulls.length > 0
      ? [`rows have ${listed(nulls)}, as tables of one type write missing ones; they are left out`]
      : []),
  ];
}
