// The scorer of a command, by its name.
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
  const device = openDevice(await chosenDevice(deviceName));
  const interruption = untilInterrupted();
  try {
    const scorer = await openScorer(device, name, options);
    try {
      // Warnings on a judge come before its numbers.
      for (const warning of scorer.warnings ?? []) console.error(`Warning: of this judge, ${warning}`);
      return await work(scorer, interruption.signal);
    } finally {
      scorer.dispose();
    }
  } finally {
    interruption.dispose();
    device.dispose();
  }
}
