// The scorer of a command, by its name.
import { ending } from '../../native/ending.js';
import { openDevice } from '../../runtime/device.js';
import { type OpenScorerOptions, openScorer } from '../../scoring/open.js';
import type { Scorer } from '../../scoring/scorer.js';
import { untilInterrupted } from '../line/interrupt.js';
import { chosenDevice } from './device.js';

/** Opens the scorer called `name`, and frees it after `work`, whose signal Ctrl-C aborts. */
export async function withScorer<T>(
  name: string,
  { device: deviceName, ...options }: OpenScorerOptions & { readonly device: string },
  work: (scorer: Scorer, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  using device = openDevice(await chosenDevice(deviceName));
  using interruption = ending(untilInterrupted());
  using scorer = ending(await openScorer(device, name, options));
  // Warnings on a judge come before its numbers.
  for (const warning of scorer.warnings ?? []) console.error(`Warning: of this judge, ${warning}`);
  return await work(scorer, interruption.signal);
}
