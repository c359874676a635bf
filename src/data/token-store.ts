// Tokenised solutions on disk: texts, tokens and tables are read on demand, so that the memory of a store does not depend on
// the number of rows.

import { closeSync, openSync } from 'node:fs';
import { type FileHandle, open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { badFile } from '../files/data-error.js';
import { systemReason } from '../files/error.js';
import { parseExact } from '../files/exact-json.js';
import { attempt } from '../native/attempt.js';
import type { StepLabel, StepRecord } from '../records/record.js';
import { type ProblemKey, SKETCH_SIZE } from './overlap.js';
import { PARTS, type Part } from './split.js';
import { readFully, TableFile } from './table-file.js';

/** A solution to write. */
export interface StoredSolution {
  readonly part: Part;
  readonly record: StepRecord;
  /** The record as `exactText` writes it. */
  readonly text: string;
  readonly key: ProblemKey;
  /** The {@link stepKey} of every step. */
  readonly stepKeys: readonly number[];
  /** Problem and steps up to the last labelled one. */
  readonly ids: Int32Array;
  /** Tokens before the first step. */
  readonly promptEnd: number;
  /** Tokens up to the end of each step that `ids` holds. */
  readonly stepEnds: readonly number[];
  /** Its {@link solutionRank}, by the seed of the data. */
  readonly rank: number;
}

/** Columns of the tables of solutions and steps, all f64. */
const SOLUTION = [
  'idsEnd',
  'stepsEnd',
  'recordEnd',
  'problem',
  'part',
  'context',
  'promptEnd',
  'rank',
] as const;
const STEP = ['end', 'label', 'key'] as const;
const SOLUTION_COLUMN = columnsOf(SOLUTION);
const STEP_COLUMN = columnsOf(STEP);
/** Its length, then its hashes, all u32. */
const SKETCH = 1 + SKETCH_SIZE;

const FILES = ['tokens.bin', 'solutions.bin', 'steps.bin', 'sketches.bin', 'records.jsonl'] as const;
type File = (typeof FILES)[number];

/** Written last; lists the other files with their checksums. */
const CONTENTS = 'contents.json';

const BUFFER_BYTES = 1 << 20;

const LINE_BREAK = 0x0a;

/** Writes a store into an empty directory. */
export class TokenStoreWriter {
  private ids = 0;
  private steps = 0;
  private recordBytes = 0;
  /** Numbers that are written of a solution; new arrays for each would keep the collector busy. */
  private readonly row = new Float64Array(SOLUTION.length);
  private readonly rowBytes = bytesOf(this.row);
  private readonly sketch = new Uint32Array(SKETCH);
  private readonly sketchBytes = bytesOf(this.sketch);
  private stepRows = new Float64Array(64 * STEP.length);

  private constructor(
    private readonly directory: string,
    private readonly files: Readonly<Record<File, AppendedFile>>,
  ) {}

  static async create(directory: string): Promise<TokenStoreWriter> {
    const files = {} as Record<File, AppendedFile>;
    for (const name of FILES) files[name] = await AppendedFile.create(join(directory, name));
    return new TokenStoreWriter(directory, files);
  }

  /** Gives undefined where buffers take the solution; else whoever adds waits before the next one. */
  add(solution: StoredSolution): Promise<unknown> | undefined {
    const { record, ids, stepEnds, stepKeys, key } = solution;
    const { files, row, sketch } = this;
    const line = files['records.jsonl'].appendLine(solution.text);
    this.ids += ids.length;
    this.steps += record.steps.length;
    this.recordBytes += line.bytes;
    row[SOLUTION_COLUMN.idsEnd] = this.ids;
    row[SOLUTION_COLUMN.stepsEnd] = this.steps;
    row[SOLUTION_COLUMN.recordEnd] = this.recordBytes;
    row[SOLUTION_COLUMN.problem] = key.hash;
    row[SOLUTION_COLUMN.part] = PARTS.indexOf(solution.part);
    row[SOLUTION_COLUMN.context] = record.context_steps ?? 0;
    row[SOLUTION_COLUMN.promptEnd] = solution.promptEnd;
    row[SOLUTION_COLUMN.rank] = solution.rank;
    sketch.fill(0);
    sketch[0] = key.sketch.length;
    sketch.set(key.sketch, 1);
    const size = record.steps.length * STEP.length;
    if (size > this.stepRows.length) this.stepRows = new Float64Array(2 * size);
    const { stepRows } = this;
    for (let i = 0, at = 0; i < record.steps.length; i++) {
      stepRows[at++] = stepEnds[i] ?? -1;
      stepRows[at++] = record.steps[i]?.label ?? -1;
      stepRows[at++] = stepKeys[i] as number;
    }
    const written = [
      line.written,
      files['tokens.bin'].append(bytesOf(ids)),
      files['steps.bin'].append(new Uint8Array(stepRows.buffer, 0, 8 * size)),
      files['solutions.bin'].append(this.rowBytes),
      files['sketches.bin'].append(this.sketchBytes),
    ];
    return written.some((each) => each !== undefined) ? Promise.all(written) : undefined;
  }

  /** Completes the store. `notes` is any JSON value to be read back with it. */
  async finish(notes: unknown): Promise<void> {
    const sums: Record<string, number> = {};
    for (const name of FILES) sums[name] = await this.files[name].close();
    const contents = await AppendedFile.create(join(this.directory, CONTENTS));
    await contents.append(Buffer.from(JSON.stringify({ sums, notes })));
    await contents.close();
  }

  /** Closes the files of an abandoned store. */
  async abandon(): Promise<void> {
    for (const name of FILES) await this.files[name].abandon();
  }
}

/** An open store. Solutions are counted from 0 over all parts, in the order of the data. */
export class TokenStore {
  /** Number of solutions. */
  readonly length: number;
  /** A sketch of each size: new ones for each solution would keep the collector busy. */
  private readonly sketchesOfSize = Array.from({ length: SKETCH }, (_, size) => new Uint32Array(size));

  private constructor(
    /** The notes passed to `finish`. */
    readonly notes: unknown,
    private readonly solutions: TableFile<Float64Array>,
    private readonly steps: TableFile<Float64Array>,
    private readonly sketches: TableFile<Uint32Array>,
    private readonly tokens: number,
    private readonly records: number,
  ) {
    this.length = solutions.length;
  }

  /** Opens a directory; undefined if it holds no store or an incomplete one. */
  static async open(directory: string): Promise<TokenStore | undefined> {
    const contents = await readContents(directory);
    if (contents === undefined) return undefined;
    const path = (name: File) => join(directory, name);
    for (const name of FILES) {
      if ((await checksum(path(name))) !== contents.sums[name]) return undefined;
    }
    return new TokenStore(
      contents.notes,
      TableFile.open(path('solutions.bin'), SOLUTION.length, Float64Array),
      TableFile.open(path('steps.bin'), STEP.length, Float64Array),
      TableFile.open(path('sketches.bin'), SKETCH, Uint32Array),
      openSync(path('tokens.bin'), 'r'),
      openSync(path('records.jsonl'), 'r'),
    );
  }

  close(): void {
    for (const table of [this.solutions, this.steps, this.sketches]) table.close();
    closeSync(this.tokens);
    closeSync(this.records);
  }

  part(index: number): Part {
    return PARTS[this.column(index, 'part')] as Part;
  }

  /** The fingerprint of its problem; the sketch in it is valid until another is asked for. */
  key(index: number): ProblemKey {
    const sketch = this.sketchesOfSize[this.sketches.at(index, 0)] as Uint32Array;
    this.sketches.copy(index, 1, sketch);
    return { hash: this.column(index, 'problem'), sketch };
  }

  contextSteps(index: number): number {
    return this.column(index, 'context');
  }

  promptEnd(index: number): number {
    return this.column(index, 'promptEnd');
  }

  /** Its {@link solutionRank}, by the seed of the data. */
  rank(index: number): number {
    return this.column(index, 'rank');
  }

  labels(index: number): StepLabel[] {
    return this.stepColumn(index, 'label', (label) => (label === 1 ? 1 : label === 0 ? 0 : null));
  }

  /** The {@link stepKey} of every step. */
  stepKeys(index: number): number[] {
    return this.stepColumn(index, 'key', (key) => key);
  }

  /** Token ends of the steps up to the last labelled one. */
  stepEnds(index: number): number[] {
    const ends = this.stepColumn(index, 'end', (end) => end);
    // Those beyond the last labelled step have none.
    while (ends.length > 0 && (ends.at(-1) as number) < 0) ends.pop();
    return ends;
  }

  /** Tokens of the problem and the steps up to the last labelled one. */
  size(index: number): number {
    return this.column(index, 'idsEnd') - this.before(index, 'idsEnd');
  }

  /** Reads those tokens. */
  ids(index: number): Int32Array {
    const ids = new Int32Array(this.size(index));
    readFully(this.tokens, bytesOf(ids), 4 * this.before(index, 'idsEnd'));
    return ids;
  }

  /** Reads the solution's text. */
  record(index: number): StepRecord {
    const start = this.before(index, 'recordEnd');
    const line = Buffer.alloc(this.column(index, 'recordEnd') - start);
    readFully(this.records, line, start);
    return parseExact(line.toString('utf8')) as StepRecord;
  }

  private column(index: number, name: (typeof SOLUTION)[number]): number {
    return this.solutions.at(index, SOLUTION_COLUMN[name]);
  }

  private before(index: number, name: 'idsEnd' | 'stepsEnd' | 'recordEnd'): number {
    return index === 0 ? 0 : this.column(index - 1, name);
  }

  private stepColumn<T>(index: number, name: (typeof STEP)[number], read: (value: number) => T): T[] {
    const end = this.column(index, 'stepsEnd');
    const start = this.before(index, 'stepsEnd');
    const column = STEP_COLUMN[name];
    const values = new Array<T>(end - start);
    for (let step = start; step < end; step++) values[step - start] = read(this.steps.at(step, column));
    return values;
  }
}

/** An append-only file with a buffer and a checksum. */
class AppendedFile {
  private sum = 0;
  private readonly buffer = Buffer.allocUnsafe(BUFFER_BYTES);
  /** Bytes in the buffer. */
  private size = 0;

  private constructor(
    private readonly path: string,
    private readonly file: FileHandle,
  ) {}

  static async create(path: string): Promise<AppendedFile> {
    return new AppendedFile(path, await open(path, 'wx'));
  }

  /** Undefined where the buffer takes them, so that most calls have nothing to wait for. */
  append(bytes: Uint8Array): Promise<void> | undefined {
    if (this.size + bytes.length > BUFFER_BYTES) return this.appendFlushed(bytes);
    this.buffer.set(bytes, this.size);
    this.size += bytes.length;
    return undefined;
  }

  /** The same of a text and a line break. */
  appendLine(text: string): { readonly bytes: number; readonly written: Promise<void> | undefined } {
    // A UTF-16 unit takes at most three bytes.
    if (this.size + 3 * text.length + 1 > BUFFER_BYTES) {
      const line = Buffer.from(`${text}\n`);
      return { bytes: line.length, written: this.append(line) };
    }
    const bytes = this.buffer.write(text, this.size) + 1;
    this.size += bytes;
    this.buffer[this.size - 1] = LINE_BREAK;
    return { bytes, written: undefined };
  }

  private async appendFlushed(bytes: Uint8Array): Promise<void> {
    await this.flush();
    if (bytes.length > BUFFER_BYTES) await this.write(bytes);
    else void this.append(bytes);
  }

  /** Gives the checksum. */
  async close(): Promise<number> {
    await this.flush();
    await this.file.close();
    return this.sum;
  }

  async abandon(): Promise<void> {
    await this.file.close();
  }

  private async flush(): Promise<void> {
    const bytes = this.buffer.subarray(0, this.size);
    this.size = 0;
    await this.write(bytes);
  }

  private async write(bytes: Uint8Array): Promise<void> {
    this.sum = crc32(bytes, this.sum);
    try {
      for (let at = 0; at < bytes.length; ) at += (await this.file.write(bytes, at)).bytesWritten;
    } catch (error) {
      throw badFile(`cannot be written: ${systemReason(error)}`, { file: this.path, cause: error });
    }
  }
}

interface Contents {
  readonly sums: Readonly<Record<string, number>>;
  readonly notes: unknown;
}

async function readContents(directory: string): Promise<Contents | undefined> {
  const text = await readFile(join(directory, CONTENTS), 'utf8').catch(() => '');
  return attempt(() => JSON.parse(text) as Contents);
}

/** CRC-32 of a file, undefined if it cannot be read. It sees damage, not forgery: the cache is the user's own. */
async function checksum(path: string): Promise<number | undefined> {
  const file = await open(path).catch(() => undefined);
  if (file === undefined) return undefined;
  const buffer = Buffer.allocUnsafe(BUFFER_BYTES);
  let sum = 0;
  try {
    for (;;) {
      const { bytesRead } = await file.read(buffer, 0, BUFFER_BYTES);
      if (bytesRead === 0) return sum;
      sum = crc32(buffer.subarray(0, bytesRead), sum);
    }
  } catch {
    return undefined;
  } finally {
    await file.close();
  }
}

function bytesOf({ buffer, byteOffset, byteLength }: Int32Array | Uint32Array | Float64Array): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

function columnsOf<Name extends string>(names: readonly Name[]): Readonly<Record<Name, number>> {
  return Object.fromEntries(names.map((name, column) => [name, column])) as Record<Name, number>;
}
