/** A table of numbers in a file, of which blocks of rows are read as they are asked for. */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { badFile } from '../files/data-error.js';

/** Rows that are read together. */
const BLOCK_ROWS = 256;

/** Blocks that stay in memory: rows of a small table are read from disk once. */
const MOST_BLOCKS = 1024;

export class TableFile {
  /** Number of rows. */
  readonly length: number;
  private readonly blocks = new Map<number, Float64Array>();
  /** The block that was asked for last. */
  private recent: { readonly number: number; readonly values: Float64Array } | undefined;

  private constructor(
    private readonly file: number,
    private readonly width: number,
  ) {
    this.length = fstatSync(file).size / (8 * width);
  }

  /** @param width columns, each of f64 in the byte order of the machine */
  static open(path: string, width: number): TableFile {
    return new TableFile(openSync(path, 'r'), width);
  }

  at(row: number, column: number): number {
    return this.block(Math.floor(row / BLOCK_ROWS))[(row % BLOCK_ROWS) * this.width + column] as number;
  }

  close(): void {
    closeSync(this.file);
  }

  private block(number: number): Float64Array {
    if (this.recent?.number === number) return this.recent.values;
    const values = this.blocks.get(number) ?? this.read(number);
    this.recent = { number, values };
    return values;
  }

  private read(number: number): Float64Array {
    const first = number * BLOCK_ROWS;
    // Its memory may be taken, and what cannot be read must not be found there afterwards.
    this.recent = undefined;
    const values = this.freeBlock();
    const size = Math.min(BLOCK_ROWS, this.length - first) * this.width;
    readFully(this.file, new Uint8Array(values.buffer, 0, 8 * size), 8 * first * this.width);
    this.blocks.set(number, values);
    return values;
  }

  /** Memory of the oldest block where there are many: new memory for each would keep the collector busy. */
  private freeBlock(): Float64Array {
    const [oldest] = this.blocks.size < MOST_BLOCKS ? [] : this.blocks;
    if (oldest === undefined) return new Float64Array(BLOCK_ROWS * this.width);
    this.blocks.delete(oldest[0]);
    return oldest[1];
  }
}

/** @throws DataError where the file ends before */
export function readFully(file: number, bytes: Uint8Array, position: number): void {
  for (let at = 0; at < bytes.length; ) {
    const read = readSync(file, bytes, at, bytes.length - at, position + at);
    if (read === 0) throw badFile('the store of tokenised solutions was cut short while it was read');
    at += read;
  }
}
