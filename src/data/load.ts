import { DataError, type FilePosition } from '../files/data-error.js';
import { attempt } from '../native/attempt.js';
import { defined, type OptionsOf } from '../native/defined.js';
import { checkOptions, invalid } from '../native/errors.js';
import { shown } from '../native/shown.js';
import type { StepRecord } from '../records/record.js';
import { warn } from '../terminal/log.js';
import { BadRow } from './bad-row.js';
import { detectLayout } from './benchmarks/layouts.js';
import { DOUBTED_INDEX, unaskedWarning, unreadParts } from './benchmarks/unasked.js';
import { groupColumn, isRow, misfit, type Row, renamed, wholeNumber } from './columns.js';
import { dataFiles, fileRows } from './files.js';
import { type ConversionOptions, detectSource, sourceNamed } from './sources/detect.js';
import { PRM800K_DEFAULTS } from './sources/prm800k.js';
import { type ConversionLog, READING_DEFAULTS, type Source, type SourceName } from './sources/source.js';
import { withoutTableNulls } from './table-nulls.js';

/** Options for reading data files. Keys are those of a run's `data` section. */
export interface LoadOptions extends OptionsOf<ConversionOptions> {
  /** The layout; `auto` recognises it by the columns of each file's first row, a benchmark's layout of problems last. Default `auto`. */
  readonly source?: SourceName | 'auto' | undefined;
  /** Whether `auto` takes problems with worked solutions too, whose steps nobody judged. Default true. */
  readonly problems?: boolean | undefined;
  /** Columns under other names than the layout's: its own name, and the file's. Default none. */
  readonly columns?: Readonly<Record<string, string>> | undefined;
  /** A column whose values become the `group` of the records. Default none. */
  readonly group_by?: string | undefined;
  /** Treatment of a row that does not fit the layout: an error, or skipped and counted. Default `error`. */
  readonly on_bad_row?: 'error' | 'skip' | undefined;
}

const RECORD_OPTIONS: Record<keyof LoadOptions, true> = {
  source: true,
  problems: true,
  columns: true,
  group_by: true,
  on_bad_row: true,
  neutral: true,
  human: true,
  null_rating: true,
  flagged: true,
  alternatives: true,
  quality_control: true,
  initial_screening: true,
  skip_finish_reasons: true,
  phase: true,
  turns: true,
  label_threshold: true,
};

/** Counts of the rows read; complete once the records have been consumed. */
export interface LoadReport {
  readonly files: readonly string[];
  /** Rows read, good or bad. */
  readonly rows: number;
  readonly records: number;
  /** Rows without a record, by reason: bad rows and those that an option leaves out. */
  readonly skipped: ReadonlyMap<string, number>;
  /** Steps without a label, by reason. */
  readonly unlabelled: ReadonlyMap<string, number>;
  /** Conversations with several replies: how many, their replies, and those that are learned. */
  readonly conversations: { readonly count: number; readonly replies: number; readonly learned: number };
  /** Rows with parts that are not read, such as a system message before the question of a problem, by part. */
  readonly unasked: ReadonlyMap<string, number>;
  /** The error message of the first bad row, if one was skipped. */
  readonly firstBadRow: string | undefined;
  /**
   * The part of a file of training data that is mixed with others, after overlapping problems were left out where
   * `on_overlap` is `skip`. Each copy counts. Counted before `max_samples`, `balance` and the method's own filters.
   */
  readonly training?: {
    solutions: number;
    /** Share of the solutions of all files. */
    share: number;
    labelled: number;
    wrong: number;
    /** Solutions left out, since their problem is one of a file for validation or test. */
    overlapping: number;
  };
}

/** The part of a file that is mixed into the training part. */
export type TrainingPart = NonNullable<LoadReport['training']>;

/**
 * Reads step-labelled solutions from files as a stream: memory does not grow with the number of rows.
 *
 * @param paths data files (.jsonl, .json, .ndjson, .csv, each also .gz; .parquet) or directories of them
 * @returns records in the order of the files and rows, once; and the report that fills while they are consumed
 * @throws DataError while iterating: a file that cannot be read, an unknown layout, or, unless `on_bad_row` is `skip`,
 *   the first bad row, each with file and line
 */
export function loadRecords(
  paths: string | readonly string[],
  options: LoadOptions = {},
): { readonly records: AsyncGenerator<StepRecord>; readonly report: LoadReport } {
  checkOptions('loadRecords', options, RECORD_OPTIONS);
  const report = new MutableReport();
  return { records: readAll(typeof paths === 'string' ? [paths] : paths, options, report), report };
}

/** Records, or rows in any layout of training data, in memory or as they come. */
export type StepRows =
  | Iterable<StepRecord | Readonly<Record<string, unknown>>>
  | AsyncIterable<StepRecord | Readonly<Record<string, unknown>>>;

/**
 * The records of rows in memory: as they are, or converted from a layout such as `{ question, steps, labels }`.
 *
 * @param what names the rows in errors
 * @throws DataError for a row that does not fit, StepTrainError for a value without rows
 */
export async function recordsOf(what: string, rows: StepRows): Promise<StepRecord[]> {
  const isRows = typeof rows === 'object' && rows !== null;
  if (!isRows || !(Symbol.iterator in rows || Symbol.asyncIterator in rows))
    throw invalid(
      `${what}: expected a list of records or the \`records\` of loadRecords, found ${shown(rows)}`,
    );
  const records: StepRecord[] = [];
  const report = new MutableReport();
  const reader = new RowReader(report, { detects: 'each', problems: true, conversion: CONVERSION_DEFAULTS });
  let number = 0;
  for await (const row of rows) {
    const position: FilePosition = { file: what, row: ++number };
    try {
      if (!isRow(row)) throw misfit('the row is', row, 'an object');
      if (isRecord(row)) {
        records.push(row);
        continue;
      }
      records.push(...reader.read(row, position));
    } catch (error) {
      if (!(error instanceof BadRow)) throw error;
      throw new DataError('row', badRowSentence(error, reader.source), position);
    }
  }
  reader.end();
  if (report.skipped.size > 0)
    warn(`${what}: rows left out: ${[...report.skipped].map(([reason, n]) => `${reason} ${n}`).join(', ')}`);
  for (const warning of unaskedWarning(report.unasked)) warn(`${what}: ${warning}`);
  return records;
}

/** Records of `loadRecords` have kinds of steps; other rows whose steps are objects need not. */
const isRecord = (row: Row): row is Row & StepRecord =>
  typeof row.problem === 'string' && Array.isArray(row.steps) && row.steps.every(isStep);
const isStep = (step: unknown) =>
  isRow(step) && typeof step.text === 'string' && typeof step.kind === 'string' && 'label' in step;

const CONVERSION_DEFAULTS: ConversionOptions = { ...PRM800K_DEFAULTS, ...READING_DEFAULTS };
class MutableReport implements LoadReport {
  files: string[] = [];
  rows = 0;
  records = 0;
  skipped = new Map<string, number>();
  unlabelled = new Map<string, number>();
  conversations = { count: 0, replies: 0, learned: 0 };
  unasked = new Map<string, number>();
  firstBadRow: string | undefined;
}

/** Counts what converters say in a report. */
function logInto(report: MutableReport): ConversionLog {
  return {
    skipRow: (reason) => count(report.skipped, reason),
    unlabelled: (reason) => count(report.unlabelled, reason),
    unasked: (part) => count(report.unasked, part),
    replies(learned, all) {
      const { conversations: so } = report;
      report.conversations = {
        count: so.count + 1,
        replies: so.replies + all,
        learned: so.learned + learned,
      };
    },
  };
}

async function* readAll(
  paths: readonly string[],
  options: LoadOptions,
  report: MutableReport,
): AsyncGenerator<StepRecord> {
  const conversion: ConversionOptions = { ...CONVERSION_DEFAULTS, ...defined(options) };
  for (const path of paths) {
    for (const file of await dataFiles(path)) {
      report.files.push(file);
      const { source = 'auto', problems = true } = options;
      const detects = source === 'auto' ? 'first' : sourceNamed(source);
      const reader = new RowReader(report, { detects, problems, conversion });
      for await (const raw of fileRows(file)) {
        report.rows++;
        const position: FilePosition =
          raw.line === undefined ? { file, row: raw.row } : { file, line: raw.line, row: raw.row };
        try {
          if (raw.bad !== undefined) throw raw.bad;
          if (!isRow(raw.value)) {
            throw misfit('the row is', raw.value, 'an object');
          }
          const named = options.columns ? renamed(raw.value, options.columns) : raw.value;
          const found = reader.read(named, position);
          const group =
            options.group_by === undefined || found.length === 0
              ? {}
              : { group: groupColumn(named, options.group_by) };
          for (const record of found) {
            report.records++;
            yield { ...record, ...group, provenance: { ...record.provenance, ...position } };
          }
        } catch (error) {
          if (!(error instanceof BadRow)) throw error;
          const failure = new DataError('row', badRowSentence(error, reader.source), position);
          if (options.on_bad_row !== 'skip') throw failure.at(position, BAD_ROW);
          count(report.skipped, error.reason);
          report.firstBadRow ??= failure.message;
        }
      }
      reader.end();
    }
  }
}

/** Columns with the problem of which a row's is a variant. */
const ORIGINALS = ['original_question', 'original_problem'];
const isText = (value: unknown): value is string => typeof value === 'string' && value.trim() !== '';

/** Whether Prodigy wrote the row, and who annotated it accepted it not. */
const isUnaccepted = (row: Row): boolean =>
  ('_input_hash' in row || '_task_hash' in row) && (row.answer === 'reject' || row.answer === 'ignore');

interface Reading {
  /** The layout, or the rows whose columns tell it: the first, or each that the layout before does not fit. */
  readonly detects: 'first' | 'each' | Source<ConversionOptions>;
  readonly problems: boolean;
  readonly conversion: ConversionOptions;
}

/** Converts the rows of a file, or of a list in memory, and counts in a report what is left out of them. */
class RowReader {
  source: Source<ConversionOptions> | undefined;
  private readonly log: ConversionLog;
  /** The labels of rows that were taken for ProcessBench, where they are indices, and -1 for solutions that are right. */
  private readonly indices = new Set<unknown>();
  private indexed = 0;

  constructor(
    private readonly report: MutableReport,
    private readonly reading: Reading,
  ) {
    this.log = logInto(report);
    if (typeof reading.detects === 'object') this.source = reading.detects;
  }

  /** @throws BadRow for a row that does not fit, DataError for one of no known layout */
  read(given: Row, position: FilePosition): readonly StepRecord[] {
    const { log } = this;
    const { detects, problems, conversion } = this.reading;
    const row = withoutTableNulls(given, log.unasked);
    if (isUnaccepted(row)) {
      log.skipRow(`prodigy_${row.answer}`);
      return [];
    }
    if (!this.source || (detects === 'each' && !this.source.matches(row)))
      this.source = detected(row, position, problems);
    if (typeof detects === 'string' && this.source.name === 'processbench') {
      this.indexed++;
      if (this.indices.size < 3) this.indices.add(wholeNumber(row.label));
    }
    const found = this.source.convert(row, conversion, log);
    for (const part of unreadParts(row, found, this.source.name)) log.unasked(part);
    const original = ORIGINALS.map((column) => row[column]).find(isText);
    return original === undefined ? found : found.map((record) => ({ ...record, original }));
  }

  /** Counts the rows after the last one, where their indices are 1 and 0 alone, as marks of whole solutions are. */
  end(): void {
    const { indices, indexed, report } = this;
    if (indices.size !== 2 || !indices.has(0) || !indices.has(1)) return;
    report.unasked.set(DOUBTED_INDEX, (report.unasked.get(DOUBTED_INDEX) ?? 0) + indexed);
  }
}

function detected(row: Row, position: FilePosition, withProblems: boolean): Source<ConversionOptions> {
  const source = detectSource(row);
  if (source !== undefined) return source;
  const unread = LISTS.find((column) => typeof row[column] === 'string' && /^\s*[[{]/.test(row[column]));
  if (unread !== undefined) {
    const text = row[unread] as string;
    const isList = Array.isArray(attempt(() => JSON.parse(text)));
    throw new DataError(
      'format',
      `column '${unread}' holds the text ${JSON.stringify(shortened(text))}, ` +
        (isList
          ? 'a list written as a text; write the list itself'
          : 'which is no list in JSON or as Python prints it; write lists as JSON (json.dumps), or the rows as JSON lines or Parquet'),
      position,
    );
  }
  const layout = detectLayout(row);
  if (layout && withProblems) return sourceNamed('problems');
  if (layout)
    throw new DataError(
      'format',
      `these are problems with their answers (${layout.name}), whose steps nobody judged, and labels of steps are needed; ` +
        'data.source problems takes every step of a worked solution as right',
      position,
    );
  const columns = Object.keys(row);
  const shown = columns.length > SHOWN_COLUMNS ? [...columns.slice(0, SHOWN_COLUMNS), '…'] : columns;
  const names = likelyColumns(row).map((name) => `--set data.columns.${name}`);
  throw new DataError(
    'format',
    `the columns ${shown.join(', ') || '(none)'} are of no known layout; expected {"question": "…", "steps": ["…"], "labels": [1, 0]}`,
    {
      ...position,
      hint:
        `columns of other names are renamed by ${names.join(' ') || '--set data.columns.question=NAME'}; ` +
        'other layouts: docs/reference/data.md',
    },
  );
}

/** Max columns shown in a message. */
const SHOWN_COLUMNS = 12;

/** Columns that are lists in every layout that has them. */
const LISTS = ['steps', 'labels', 'completions', 'messages', 'conversations'];

const shortened = (text: string) => (text.length > 60 ? `${text.slice(0, 60)}…` : text);

/** Guesses the meaning of columns that are not named yet, as `layout's name=column`. */
function likelyColumns(row: Row): string[] {
  const isMark = (value: unknown) => value === null || [0, 1, true, false].includes(value as never);
  const kinds: readonly (readonly [string, (value: unknown) => boolean])[] = [
    ['question', (value) => typeof value === 'string'],
    [
      'steps',
      (value) => Array.isArray(value) && value.length > 0 && value.every((each) => typeof each === 'string'),
    ],
    ['labels', (value) => Array.isArray(value) && value.length > 0 && value.every(isMark)],
  ];
  const found = kinds.map(([name, fits]) => [name, Object.keys(row).find((column) => fits(row[column]))]);
  if (found.some(([, column]) => column === undefined)) return [];
  return found.flatMap(([name, column]) => (name === column ? [] : [`${name}=${column}`]));
}

function badRowSentence(error: BadRow, source: Source<ConversionOptions> | undefined): string {
  const layout = source === undefined ? '' : ` (read as ${source.name})`;
  return `${error.message}${layout}`;
}

const BAD_ROW =
  'correct the row, or skip such rows: on_bad_row: skip, of a command --set data.on_bad_row=skip';

function count(counts: Map<string, number>, reason: string): void {
  counts.set(reason, (counts.get(reason) ?? 0) + 1);
}
