// The file of `steptrain generate --output`. Finished rows are kept in a second file, so that a stopped command can go
// on.

import { writeFileAtomically } from '../../files/atomic-file.js';
import { exactText } from '../../files/exact-json.js';
import { type Draws, openDraws } from '../../run/draws.js';
import { UsageError } from '../line/error.js';

type OutputRow = Readonly<Record<string, unknown>>;

export interface SampleOutput {
  has(prompt: number, sample: number): boolean;
  /** The row of a sample that has come to its end; it is on the disk when the call returns. */
  keep(prompt: number, sample: number, row: OutputRow): void;
  /** Rows so far. */
  readonly size: number;
  /** Writes the file, in the order of prompts and samples. */
  finish(prompts: number, n: number): Promise<void>;
  close(): void;
}

const SETTINGS = 'settings';

/**
 * Opens `output`.part, or goes on with one that a stopped command left.
 *
 * @param settings all that the samples depend on
 * @throws UsageError where it holds samples of other settings
 */
export function openOutput(output: string, settings: Readonly<Record<string, unknown>>): SampleOutput {
  const part = `${output}.part`;
  const draws = openDraws(part);
  const earlier = draws.get(SETTINGS) as Readonly<Record<string, unknown>> | undefined;
  const now = JSON.parse(JSON.stringify(settings)) as Readonly<Record<string, unknown>>;
  const other = earlier && Object.keys(now).find((key) => text(earlier[key]) !== text(now[key]));
  if (other !== undefined)
    throw new UsageError(
      `${part} holds samples of a stopped command whose ${other} was ${text(earlier?.[other])}, and it is ${text(now[other])} now; ` +
        'go on with the settings of then, remove the file, or choose another --output',
    );
  let size = Math.max(0, draws.size - 1);
  const begin = () => earlier ?? (draws.size === 0 && draws.keep(SETTINGS, now));
  return {
    has: (prompt, sample) => draws.get(keyOf(prompt, sample)) !== undefined,
    keep(prompt, sample, row) {
      begin();
      draws.keep(keyOf(prompt, sample), row);
      size++;
    },
    get size() {
      return size;
    },
    async finish(prompts, n) {
      await writeFileAtomically(output, rows(draws, prompts, n));
      draws.clear();
    },
    close: () => draws.close(),
  };
}

const keyOf = (prompt: number, sample: number) => `${prompt}/${sample}`;

function rows(draws: Draws, prompts: number, n: number): Buffer[] {
  return Array.from({ length: prompts * n }, (_, i) => {
    const row = draws.get(keyOf(Math.floor(i / n), i % n));
    return Buffer.from(`${exactText(row)}\n`);
  });
}

function text(value: unknown): string {
  const whole = value === undefined ? 'not set' : JSON.stringify(value);
  return whole.length > 80 ? `${whole.slice(0, 79)}…` : whole;
}
