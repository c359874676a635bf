/** A table of numbers in a file, of which blocks of rows are read as they are asked for. */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { badFile } from '../files/data-error.js';

/** Rows that are read together. */
const BLOCK_ROWS = 1024;

/** Blocks that stay in memory: rows of a small table are read from disk once. */
const MOST_BLOCKS = 256;

type Numbers = Float64Array | Uint32Array;

interface NumbersType<Values extends Numbers> {
  new (length: number): Values;
  readonly BYTES_PER_ELEMENT: number;
}

export class TableFile<Values extends Numbers> {
  /** Number of rows. */
  readonly length: number;
  private readonly blocks = new Map<number, Values>();
  /** The block that was asked for last. */
  private recent: Values | undefined;
  private recentNumber = -1;

  private constructor(
    private readonly file: number,
    private readonly width: number,
    private readonly type: NumbersType<Values>,
  ) {
    this.length = fstatSync(file).size / (type.BYTES_PER_ELEMENT * width);
  }

  /** @param width columns, each of `type` in the byte order of the machine */
  static open<Values extends Numbers>(
    path: string,
    width: number,
    type: NumbersType<Values>,
  ): TableFile<Values> {
    return new TableFile(openSync(path, 'r'), width, type);
  }

  at(row: number, column: number): number {
    const number = Math.floor(row / BLOCK_ROWS);
    return this.block(number)[(row - number * BLOCK_ROWS) * this.width + column] as number;
  }

  /** Copies the columns of a row from `start` on, as many as `target` has. */
  copy(row: number, start: number, target: Values): void {
    const number = Math.floor(row / BLOCK_ROWS);
    const first = (row - number * BLOCK_ROWS) * this.width + start;
    const values = this.block(number);
    for (let i = 0; i < target.length; i++) target[i] = values[first + i] as number;
  }

  close(): void {
    closeSync(this.file);
  }

  private block(number: number): Values {
    if (this.recentNumber === number && this.recent !== undefined) return this.recent;
    const values = this.blocks.get(number) ?? this.read(number);
    this.recent = values;
    this.recentNumber = number;
    return values;
  }

  private read(number: number): Values {
    const first = number * BLOCK_ROWS;
    // Its memory may be taken, and what cannot be read must not be found there afterwards.
    this.recent = undefined;
    const values = this.freeBlock();
    const { BYTES_PER_ELEMENT } = this.type;
    const size = Math.min(BLOCK_ROWS, this.length - first) * this.width;
    const bytes = new Uint8Array(values.buffer, 0, BYTES_PER_ELEMENT * size);
    readFully(this.file, bytes, BYTES_PER_ELEMENT * first * this.width);
    this.blocks.set(number, values);
    return values;
  }

  /** Memory of the oldest block where there are many: new memory for each would keep the collector busy. */
  private freeBlock(): Values {
    const [oldest] = this.blocks.size < MOST_BLOCKS ? [] : this.blocks;
    if (oldest === undefined) return new this.type(BLOCK_ROWS * this.width);
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
