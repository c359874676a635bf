/** The part of the memory plan for methods that sample: pages of keys and values, which never coexist with activations. */
import type { ModelConfig } from '../../architectures/config.js';
import { architectureOf } from '../../architectures/table.js';
import { cacheShape } from '../../generate/cache/keys-values.js';
import { DEFAULT_TOKENS, fastestRows } from '../../generate/room.js';
import { keptStatesFor, pagesOfRow } from '../../generate/scheduler.js';
import { stackBytes } from '../../models/adapter-stack.js';
import { StepTrainError } from '../../native/errors.js';
import type { Device } from '../../runtime/device.js';
import { gibibytes } from './bytes.js';

/** The samples of a method. */
export interface PlannedSampling {
  /** Tokens of the longest prompt with its sample. */
  readonly longest: number;
  /** Max samples that run together. Default: the fastest number on the device. */
  readonly rows?: number | undefined;
}

/** Planned samples with their number of rows. */
export interface Sampled {
  readonly longest: number;
  readonly rows: number;
}

/** Adds the number of rows that is fastest on `device` where none is set. */
export function withRows(
  sampled: PlannedSampling | undefined,
  device: Pick<Device, 'info'>,
): Sampled | undefined {
  return sampled && { longest: sampled.longest, rows: sampled.rows ?? fastestRows(device) };
}

/** Bytes. They are held from the first token of a rollout to its last, and not while the policy learns. */
export interface SamplingPlan extends Sampled {
  readonly pageBytes: number;
  /** Bytes of one sample, the min. */
  readonly least: number;
  /** Bytes of all samples that run together, the max that is useful. */
  readonly most: number;
  /** Max bytes of the forward of a step, of states and of packed adapters, in addition to the pages. */
  readonly forward: number;
}

/** The adapter that samples are drawn from, on activations of `dtype`. */
export interface PlannedAdapter {
  readonly dtype: 'f32' | 'bf16';
  /** 0: none. */
  readonly rank: number;
  /** Its pairs, which are packed while it samples. */
  readonly pairs?: Parameters<typeof stackBytes>[0];
}

export function samplingPlan(
  { longest, rows }: Sampled,
  decoder: ModelConfig,
  { dtype, rank, pairs = [] }: PlannedAdapter,
): SamplingPlan {
  const { pageBytes, rowBytes, window } = cacheShape({ config: decoder, dtype });
  const bytes = dtype === 'bf16' ? 2 : 4;
  const { stream, saved } = architectureOf(decoder).memory(decoder, { bytes, rank });
  const pages = pagesOfRow(Math.min(longest, decoder.maxPositions), {
    maxRows: rows,
    maxTokens: DEFAULT_TOKENS,
    window,
  });
  return {
    longest,
    rows,
    pageBytes,
    least: pages * pageBytes,
    most: rows * pages * pageBytes,
    forward:
      Math.max(rows, DEFAULT_TOKENS) * (2 * stream + saved) +
      rows * 4 * decoder.vocabSize +
      (rows + keptStatesFor(rows)) * rowBytes +
      stackBytes(pairs, dtype),
  };
}

/**
 * Bytes of pages for a run that may use `available` bytes, of which the roles take `fixedBytes`: as much as all samples
 * can fill, or else all that is left.
 *
 * @throws StepTrainError with the missing bytes where not even one sample fits
 */
export function fitCache(
  { least, most, forward, longest, pageBytes }: SamplingPlan,
  { available, fixedBytes }: { readonly available: number; readonly fixedBytes: number },
): number {
  const free = available - fixedBytes - forward;
  if (free < least) {
    throw new StepTrainError(
      'E_MEMORY',
      `sampling needs ${gibibytes(fixedBytes + forward + least)} (${gibibytes(fixedBytes)} for the roles, ` +
        `${gibibytes(least)} of keys and values for one sample of ${longest} tokens, ${gibibytes(forward)} for a step) ` +
        `and ${gibibytes(available)} can be used: ${gibibytes(fixedBytes + forward + least - available)} are missing; ` +
        'set model.dtype: bf16, or shorten data.max_length',
    );
  }
  return Math.min(most, Math.floor(free / pageBytes) * pageBytes);
}
