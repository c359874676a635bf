import { defined } from '../native/defined.js';
import { StepTrainError } from '../native/errors.js';

/** A position in a data file. Lines and rows are counted from 1. */
export interface FilePosition {
  readonly file: string;
  /** Line on which the row starts; absent for parquet, which has no lines. */
  readonly line?: number;
  /** Row within the file. */
  readonly row?: number;
}

/**
 * One clear sentence about data that cannot be used. `kind` is stable:
 * `file` (missing, unreadable, cut short), `format` (columns are of no known source), `row` (one bad row),
 * `option` (an option that cannot work), `template` (prompt or chat template), `tokenizer` (tokenizer files or text).
 */
export class DataError extends StepTrainError {
  override readonly name = 'DataError';
  readonly position: FilePosition | undefined;

  constructor(
    readonly kind: 'file' | 'format' | 'row' | 'option' | 'template' | 'tokenizer',
    /** The message without the place and the hint. */
    readonly what: string,
    { cause, hint, file, ...within }: Partial<FilePosition> & ErrorOptions & { readonly hint?: string } = {},
  ) {
    const position = file === undefined ? undefined : { file, ...within };
    const place = position === undefined ? '' : `${describePosition(position)}: `;
    super('E_DATA', `${place}${what}${hint === undefined ? '' : `; ${hint}`}`, defined({ cause, hint }));
    this.position = position;
  }

  /** The error with another place, and a hint on what to do there. */
  at(position: FilePosition, hint: string): DataError {
    return new DataError(this.kind, this.what, { ...position, hint, cause: this.cause });
  }
}

/** Errors of one kind. */
const ofKind =
  (kind: DataError['kind']) => (message: string, details?: Partial<FilePosition> & ErrorOptions) =>
    new DataError(kind, message, details);

export const badFile = ofKind('file');
export const badOption = ofKind('option');
export const badTemplate = ofKind('template');
export const badTokenizer = ofKind('tokenizer');

/** `data.jsonl, line 12` or `data.parquet, row 7`. */
function describePosition(position: FilePosition): string {
  if (position.line !== undefined) return `${position.file}, line ${position.line}`;
  if (position.row !== undefined) return `${position.file}, row ${position.row}`;
  return position.file;
}

/** The message of anything that was thrown, without a trailing full stop, for use inside a sentence. */
export function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.split('\n', 1)[0]?.replace(/\.$/, '') ?? '';
}
