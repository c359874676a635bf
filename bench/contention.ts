/**
 * What a training loop loses beside processes that keep a core each: seconds of a step beside 0, 1 and 2 of them, ours and
 * PyTorch's in turn, with one thread and with two. Losses are ratios to the same side alone.
 */
import type { StepCase } from './cases.js';
import { stepCase } from './counted-cases.js';
import { startLoad } from './load.js';
import { SMALL } from './models.js';
import { type Rival, rivalTrial } from './rival.js';
import { mean, median, type Spread, spread } from './statistics.js';
import type { TrialReply } from './trial.js';
import { ourTrial } from './trial-process.js';

/** A step of a few milliseconds, whose ops are small: threads wait for each other often. */
const STEP: StepCase = stepCase('f32', '12M', SMALL, [32, 32], 16);
const THREADS = [1, 2];
const BUSY = [0, 1, 2];
const SIDES = ['ours', 'rival'] as const;
type Side = (typeof SIDES)[number];

/** Bars: ours may lose so many times what the rival does, and two threads on two cores so much beside two processes. */
export const BARS = { besideRival: 1.3, twoOnTwo: 2.6 } as const;

export interface Contention {
  readonly threads: number;
  /** Processes that kept a core each. */
  readonly busy: number;
  /** Of a step, over the rounds; each is the mean over its trial, in which slow steps count. */
  readonly seconds: Readonly<Partial<Record<Side, Spread>>>;
  /** Median, over the rounds, of its seconds beside the processes divided by those alone. */
  readonly loss: Readonly<Partial<Record<Side, number>>>;
}

export interface ContentionResult {
  readonly item: StepCase;
  readonly results: readonly Contention[];
  readonly errors: readonly string[];
}

export async function measureContention(
  rival: Rival | undefined,
  { pairs, seconds }: { readonly pairs: number; readonly seconds: number },
  progress: (text: string) => void,
): Promise<ContentionResult> {
  const times = new Map<string, number[]>();
  const errors = new Set<string>();
  const sides = rival ? SIDES : SIDES.slice(0, 1);
  for (let round = 1; round <= pairs; round++) {
    for (const threads of THREADS) {
      const env = { STEPTRAIN_THREADS: String(threads) };
      const trials = sides.map((side) => ({
        side,
        process: side === 'rival' && rival ? rivalTrial(rival, env) : ourTrial(env),
      }));
      for (const busy of BUSY) {
        for (const { side, process } of trials) {
          progress(`contention: ${side}, ${threads} threads beside ${busy}, round ${round} of ${pairs}`);
          const load = startLoad(busy);
          const reply = await process
            .request({ item: STEP, setting: 'plain', seconds })
            .finally(() => load.end());
          note(reply, side, threads, busy);
        }
      }
      for (const { process } of trials) await process.close();
    }
  }
  return {
    item: STEP,
    results: THREADS.flatMap((threads) => BUSY.map((busy) => summary(threads, busy))),
    errors: [...errors],
  };

  function note(reply: TrialReply, side: Side, threads: number, busy: number) {
    if ('error' in reply) errors.add(`${side}: ${reply.error}`);
    const key = [side, threads, busy].join();
    const all = times.get(key) ?? [];
    times.set(key, [...all, 'error' in reply ? Number.NaN : mean(reply.samples)]);
  }

  function summary(threads: number, busy: number): Contention {
    const of = (side: Side, busy: number) => times.get([side, threads, busy].join()) as number[];
    const measured = sides.filter((side) => !of(side, busy).concat(of(side, 0)).some(Number.isNaN));
    const each = <T>(value: (side: Side) => T) =>
      Object.fromEntries(measured.map((side) => [side, value(side)])) as Partial<Record<Side, T>>;
    return {
      threads,
      busy,
      seconds: each((side) => spread(of(side, busy))),
      loss: each((side) =>
        median(of(side, busy).map((taken, round) => taken / (of(side, 0)[round] as number))),
      ),
    };
  }
}
