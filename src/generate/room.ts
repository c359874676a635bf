/**
 * Number of samples that run together, and their memory: one rule for commands, rollouts, evaluations and the server.
 */
import type { Decoder } from '../models/decoder.js';
import { invalid, StepTrainError } from '../native/errors.js';
import { shown } from '../native/shown.js';
import { PAGE_TOKENS } from '../ops/cache.js';
import { spareMemory } from '../runtime/memory.js';
import { cacheShape } from './cache/keys-values.js';
import { type SamplingOptions, samplingSettings } from './options.js';
import { keptStatesFor, pagesOfRow } from './scheduler.js';

/**
 * Samples that ran together fastest where that was measured; a step reads the weights once for all of them. On a CPU more
 * than 64 bring nothing, whose cores are busy from there on (research/runtime.md). An H100 drew 2.5 times the tokens
 * with 256 rows that it drew with 64 (Qwen2.5-0.5B, research/h100.md); more were not tried.
 */
const MEASURED_ROWS = { cpu: 64, gpu: 256 };

/** Tokens of one forward while sampling. */
export const DEFAULT_TOKENS = 512;

export function fastestRows(device: Pick<Decoder['device'], 'info'>): number {
  return device.info().name === 'cpu' ? MEASURED_ROWS.cpu : MEASURED_ROWS.gpu;
}

/** Default bytes for keys and values: half of what may be planned for; the rest is for the steps. */
export function cacheBudget(device: Decoder['device']): number {
  return Math.floor(spareMemory(device) / 2);
}

/** Checks limits. @throws StepTrainError for one that is no whole number above 0; absent ones are not checked */
export function checkWhole(limits: Readonly<Record<string, number | undefined>>): void {
  for (const [name, value] of Object.entries(limits)) {
    if (value === undefined || (Number.isSafeInteger(value) && value > 0)) continue;
    throw invalid(`generator: ${name}: expected a whole number above 0, found ${shown(value)}`);
  }
}

/** Samples that run together, and bytes of their keys and values. */
export interface Room {
  readonly maxRows: number;
  readonly cacheBytes: number;
}

export interface RoomOptions extends SamplingOptions {
  /** Max rows; default: the fastest number, or as many as there is memory for. */
  readonly maxRows?: number | undefined;
  readonly maxTokens?: number | undefined;
  /** Max bytes. Default: those of the device, half of what it may plan for. */
  readonly cacheBytes?: number | undefined;
}

/**
 * The rows that are fastest or, if the pages of so many do not fit, as many of the longest as do: one that finds no page waits,
 * or is computed twice. Samples of one prompt share its whole pages.
 *
 * @throws StepTrainError for an option out of range, and where not even one page fits
 */
export function roomToGenerate(
  decoder: Pick<Decoder, 'config' | 'dtype' | 'device'>,
  prompts: readonly ArrayLike<number>[],
  { maxRows, maxTokens = DEFAULT_TOKENS, cacheBytes, ...options }: RoomOptions,
): Room {
  const { config, device } = decoder;
  const { pageBytes, rowBytes, window } = cacheShape(decoder);
  const { n, maxNewTokens } = samplingSettings(options, config, prompts.length);
  checkWhole({ maxRows, maxTokens, cacheBytes });
  const bytes = Math.min(cacheBudget(device), cacheBytes ?? Number.POSITIVE_INFINITY);
  if (bytes < pageBytes)
    throw new StepTrainError(
      'E_MEMORY',
      `no memory is left for keys and values: ${bytes} bytes, and a page takes ${pageBytes}; raise run.memory_fraction, or free memory`,
    );
  const most = maxRows ?? fastestRows(device);
  const needs = prompts
    .map(({ length }) => {
      const longest = Math.min(length + maxNewTokens, config.maxPositions);
      const pages = pagesOfRow(longest, { maxRows: most, maxTokens, window });
      return { pages, shared: Math.min(pages - 1, Math.floor(length / PAGE_TOKENS)) };
    })
    .sort((a, b) => b.pages - a.pages);
  let [rows, alone, together] = [0, 0, 0];
  for (const { pages, shared } of needs)
    for (let sample = 0; sample < n && rows < most; sample++) {
      const own = sample === 0 ? pages : pages - shared;
      const states = (rows + 1 + keptStatesFor(rows + 1)) * rowBytes;
      if (maxRows === undefined && rows > 0 && (together + own) * pageBytes + states > bytes)
        return { maxRows: rows, cacheBytes: Math.min(alone * pageBytes, bytes) };
      rows++;
      together += own;
      alone += pages;
    }
  return { maxRows: most, cacheBytes: Math.min(Math.max(1, alone) * pageBytes, bytes) };
}
