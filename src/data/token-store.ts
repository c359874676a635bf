// Tokenised solutions on disk: texts, tokens and tables are read on demand, so that the memory of a store does not depend on
// the number of rows.

import { createHash } from 'node:crypto';
import { closeSync, createReadStream, openSync } from 'node:fs';
import { type FileHandle, open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
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
}

/** Columns of the tables, all f64. */
const SOLUTION = ['idsEnd', 'stepsEnd', 'recordEnd', 'problem', 'part', 'context', 'promptEnd'] as const;
const STEP = ['end', 'label', 'key'] as const;
/** Its length, then its hashes. */
const SKETCH = 1 + SKETCH_SIZE;

const FILES = ['tokens.bin', 'solutions.bin', 'steps.bin', 'sketches.bin', 'records.jsonl'] as const;
type File = (typeof FILES)[number];

/** Written last; lists the other files with their checksums. */
const CONTENTS = 'contents.json';

const BUFFER_BYTES = 1 << 20;

/** Writes a store into an empty directory. */
export class TokenStoreWriter {
  private ids = 0;
  private steps = 0;
  private recordBytes = 0;

  private constructor(
    private readonly directory: string,
    private readonly files: Readonly<Record<File, AppendedFile>>,
  ) {}

  static async create(directory: string): Promise<TokenStoreWriter> {
    const files = {} as Record<File, AppendedFile>;
    for (const name of FILES) files[name] = await AppendedFile.create(join(directory, name));
    return new TokenStoreWriter(directory, files);
  }

  async add(solution: StoredSolution): Promise<void> {
    const { record, text, ids, stepEnds } = solution;
    const { files } = this;
    const line = Buffer.from(`${text}\n`);
    this.ids += ids.length;
    this.steps += record.steps.length;
    this.recordBytes += line.length;
    await files['tokens.bin'].append(bytesOf(ids));
    await files['records.jsonl'].append(line);
    const steps = new Float64Array(record.steps.length * STEP.length);
    for (const [i, step] of record.steps.entries())
      steps.set([stepEnds[i] ?? -1, step.label ?? -1, solution.stepKeys[i] as number], i * STEP.length);
    await files['steps.bin'].append(bytesOf(steps));
    const row: Readonly<Record<(typeof SOLUTION)[number], number>> = {
      idsEnd: this.ids,
      stepsEnd: this.steps,
      recordEnd: this.recordBytes,
      problem: solution.key.hash,
      part: PARTS.indexOf(solution.part),
      context: record.context_steps ?? 0,
      promptEnd: solution.promptEnd,
    };
    await files['solutions.bin'].append(bytesOf(Float64Array.from(SOLUTION, (column) => row[column])));
    const sketch = new Float64Array(SKETCH);
    sketch[0] = solution.key.sketch.length;
    sketch.set(solution.key.sketch, 1);
    await files['sketches.bin'].append(bytesOf(sketch));
  }

  /** Completes the store. `notes` is any JSON value to be read back with it. */
  async finish(notes: unknown): Promise<void> {
    const sums: Record<string, string> = {};
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

  private constructor(
    /** The notes passed to `finish`. */
    readonly notes: unknown,
    private readonly solutions: TableFile,
    private readonly steps: TableFile,
    private readonly sketches: TableFile,
    private readonly tokens: number,
    private readonly records: number,
  ) {
    this.length = solutions.length;
  }

  /** Opens a directory; undefined if it holds no store or an incomplete one. */
  static async open(directory: string): Promise<TokenStore | undefined> {
    const contents = await readContents(directory);
    if (contents === undefined) return undefined;
    for (const name of FILES) {
      if ((await checksum(join(directory, name))) !== contents.sums[name]) return undefined;
    }
    const path = (name: File) => join(directory, name);
    return new TokenStore(
      contents.notes,
      TableFile.open(path('solutions.bin'), SOLUTION.length),
      TableFile.open(path('steps.bin'), STEP.length),
      TableFile.open(path('sketches.bin'), SKETCH),
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

  key(index: number): ProblemKey {
    const sketch = new Uint32Array(this.sketches.at(index, 0));
    for (let i = 0; i < sketch.length; i++) sketch[i] = this.sketches.at(index, 1 + i);
    return { hash: this.column(index, 'problem'), sketch };
  }

  contextSteps(index: number): number {
    return this.column(index, 'context');
  }

  promptEnd(index: number): number {
    return this.column(index, 'promptEnd');
  }

  labels(index: number): StepLabel[] {
    return this.stepColumn(index, 'label').map((label) => (label === 1 ? 1 : label === 0 ? 0 : null));
  }

  /** The {@link stepKey} of every step. */
  stepKeys(index: number): number[] {
    return this.stepColumn(index, 'key');
  }

  /** Token ends of the steps up to the last labelled one. */
  stepEnds(index: number): number[] {
    return this.stepColumn(index, 'end').filter((end) => end >= 0);
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
    return this.solutions.at(index, SOLUTION.indexOf(name));
  }

  private before(index: number, name: 'idsEnd' | 'stepsEnd' | 'recordEnd'): number {
    return index === 0 ? 0 : this.column(index - 1, name);
  }

  private stepColumn(index: number, name: (typeof STEP)[number]): number[] {
    const start = this.before(index, 'stepsEnd');
    const count = this.column(index, 'stepsEnd') - start;
    const at = STEP.indexOf(name);
    const values = new Array<number>(count);
    for (let i = 0; i < count; i++) values[i] = this.steps.at(start + i, at);
    return values;
  }
}

/** An append-only file with a buffer and a checksum. */
class AppendedFile {
  private readonly hash = createHash('sha256');
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

  private async appendFlushed(bytes: Uint8Array): Promise<void> {
    await this.flush();
    if (bytes.length > BUFFER_BYTES) await this.write(bytes);
    else void this.append(bytes);
  }

  async close(): Promise<string> {
    await this.flush();
    await this.file.close();
    return this.hash.digest('hex');
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
    this.hash.update(bytes);
    try {
      for (let at = 0; at < bytes.length; ) at += (await this.file.write(bytes, at)).bytesWritten;
    } catch (error) {
      throw badFile(`cannot be written: ${systemReason(error)}`, { file: this.path, cause: error });
    }
  }
}

interface Contents {
  readonly sums: Readonly<Record<string, string>>;
  readonly notes: unknown;
}

async function readContents(directory: string): Promise<Contents | undefined> {
  const text = await readFile(join(directory, CONTENTS), 'utf8').catch(() => '');
  return attempt(() => JSON.parse(text) as Contents);
}

async function checksum(path: string): Promise<string | undefined> {
  const hash = createHash('sha256');
  try {
    for await (const chunk of createReadStream(path, { highWaterMark: BUFFER_BYTES }))
      hash.update(chunk as Buffer);
  } catch {
    return undefined;
  }
  return hash.digest('hex');
}

function bytesOf({ buffer, byteOffset, byteLength }: Int32Array | Float64Array): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}
