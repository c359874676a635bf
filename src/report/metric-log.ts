/** metrics.jsonl as columns: steps and values by phase and key. Only appended lines are read again. */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { attempt } from '../native/attempt.js';
import { curveKeys } from '../run/metric-keys.js';

/** The values of one key in one phase, in the order of the log. */
export interface Column {
  /** Optimizer steps over all phases. */
  readonly step: number[];
  /** Optimizer steps within the phase. */
  readonly phaseStep: number[];
  readonly value: number[];
}

export interface Phase {
  readonly name: string;
  readonly columns: ReadonlyMap<string, Column>;
  /** Index of its first and last line in the log. */
  readonly lines: readonly [first: number, last: number];
  /** Steps within the phase so far. */
  readonly steps: number;
}

/** Grows as the file grows. */
export class MetricLog {
  private readonly phasesByName = new Map<
    string,
    { name: string; columns: Map<string, Column>; lines: [number, number]; steps: number }
  >();
  private offset = 0;
  private rest = Buffer.alloc(0);
  /** Lines so far. */
  lines = 0;
  /** Lines that are no JSON object. */
  damaged = 0;
  /** Step of the last line. */
  step = 0;

  constructor(private readonly path: string) {}

  get phases(): readonly Phase[] {
    return [...this.phasesByName.values()];
  }

  phase(name: string): Phase | undefined {
    return this.phasesByName.get(name);
  }

  /** The last value of `key` in `phase`. */
  last(phase: string, key: string): number | undefined {
    return this.phasesByName.get(phase)?.columns.get(key)?.value.at(-1);
  }

  /**
   * Reads appended lines; everything again where the file was cut, as a resumed run does. Returns whether it changed.
   */
  read(): boolean {
    const file = attempt(() => openSync(this.path, 'r'));
    if (file === undefined) return false;
    try {
      const { size } = fstatSync(file);
      if (size === this.offset) return false;
      if (size < this.offset) this.clear();
      const chunk = Buffer.alloc(1 << 20);
      for (;;) {
        const length = readSync(file, chunk, 0, chunk.length, this.offset);
        if (length === 0) break;
        this.offset += length;
        this.take(chunk.subarray(0, length));
      }
      return true;
    } finally {
      closeSync(file);
    }
  }

  private clear(): void {
    this.phasesByName.clear();
    this.offset = 0;
    this.rest = Buffer.alloc(0);
    this.lines = 0;
    this.damaged = 0;
    this.step = 0;
  }

  /** A last line without its line break is kept until the rest of it comes. */
  private take(bytes: Buffer): void {
    const all = Buffer.concat([this.rest, bytes]);
    const end = all.lastIndexOf(0x0a) + 1;
    this.rest = Buffer.from(all.subarray(end));
    for (const line of all.toString('utf8', 0, end).split('\n')) {
      if (line === '') continue;
      this.lines++;
      const row = objectOf(line);
      if (row) this.add(row);
      else this.damaged++;
    }
  }

  private add(row: Readonly<Record<string, unknown>>): void {
    const name = typeof row.phase === 'string' ? row.phase : '';
    const step = numberOr(row.step, this.step);
    const phaseStep = numberOr(row.phase_step, step);
    const index = this.lines - 1;
    let phase = this.phasesByName.get(name);
    if (!phase) {
      phase = { name, columns: new Map(), lines: [index, index], steps: 0 };
      this.phasesByName.set(name, phase);
    }
    phase.lines[1] = index;
    phase.steps = phaseStep;
    this.step = step;
    const keyOf = curveKeys(row);
    for (const [own, value] of leaves(row, '')) {
      if (own === 'step' || own === 'phase_step') continue;
      const key = keyOf(own);
      let column = phase.columns.get(key);
      if (!column) {
        column = { step: [], phaseStep: [], value: [] };
        phase.columns.set(key, column);
      }
      column.step.push(step);
      column.phaseStep.push(phaseStep);
      column.value.push(value);
    }
  }
}

function objectOf(line: string): Readonly<Record<string, unknown>> | undefined {
  return attempt(() => {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  });
}

const numberOr = (value: unknown, other: number) =>
  typeof value === 'number' && Number.isFinite(value) ? value : other;

function leaves(row: object, prefix: string): [string, number][] {
  return Object.entries(row).flatMap(([key, value]): [string, number][] => {
    if (typeof value === 'number' && Number.isFinite(value)) return [[prefix + key, value]];
    return typeof value === 'object' && value !== null ? leaves(value, `${prefix}${key}/`) : [];
  });
}
