/** Each process's share of a job's work, and the time that it waited for the others. */
import type { Cluster } from '../../cluster/cluster.js';
import { exchange } from '../../cluster/exchange.js';
import type { Metrics } from '../stage.js';

export interface RankMeter {
  /** Tokens that this process has trained on or sampled. */
  add(tokens: number): void;
  /**
   * Values since the last call by rank: `rank_0_tokens_per_second` and `rank_0_waited_seconds`, of `logged_seconds`.
   * All processes call it at the same points, and get the same.
   */
  lap(): Promise<Metrics>;
  /** The shortest and longest wait of a process in the last lap, for the progress line. */
  readonly shown: Readonly<Record<string, string>>;
  /** One line on all laps so far; undefined before the first. */
  summary(): string | undefined;
}

interface Lap {
  readonly tokens: number;
  readonly waited: number;
  readonly seconds: number;
}

/** @param now milliseconds; for tests */
export function rankMeter(
  cluster: Pick<Cluster, 'gather' | 'size' | 'waiting'>,
  now: () => number = () => performance.now(),
): RankMeter {
  const totals = Array.from({ length: cluster.size }, () => ({ tokens: 0, waited: 0, seconds: 0 }));
  let tokens = 0;
  let shown: Readonly<Record<string, string>> = {};
  let from = { time: now(), waited: cluster.waiting.seconds };
  return {
    get shown() {
      return shown;
    },
    add(more) {
      tokens += more;
    },
    async lap() {
      const to = { time: now(), waited: cluster.waiting.seconds };
      const own: Lap = {
        tokens,
        waited: to.waited - from.waited,
        seconds: (to.time - from.time) / 1000,
      };
      from = to;
      tokens = 0;
      const laps = await exchange(cluster, own);
      for (const [rank, lap] of laps.entries()) {
        const total = totals[rank] as (typeof totals)[number];
        for (const key of ['tokens', 'waited', 'seconds'] as const) total[key] += lap[key];
      }
      const shares = laps.map(({ waited, seconds }) => waited / Math.max(seconds, Number.MIN_VALUE));
      shown = { waited: `${percentOf(Math.min(...shares))} to ${percentOf(Math.max(...shares))}` };
      return {
        logged_seconds: laps[0]?.seconds ?? 0,
        ...Object.fromEntries(
          laps.flatMap(({ tokens, waited, seconds }, rank) => [
            [`rank_${rank}_tokens_per_second`, seconds > 0 ? tokens / seconds : 0],
            [`rank_${rank}_waited_seconds`, waited],
          ]),
        ),
      };
    },
    summary() {
      if (totals.every(({ seconds }) => seconds === 0)) return undefined;
      const shares = totals.map(({ waited, seconds }) => waited / seconds);
      const rates = totals.map(({ tokens, seconds }) => tokens / seconds);
      return `by rank: ${listOf(rates, (rate) => rate.toFixed(0))} tokens/s; waited ${listOf(shares, percentOf)} of the time${blame(shares)}`;
    },
  };
}

const percentOf = (share: number) => `${(100 * share).toFixed(0)} %`;

/** All values of a short list, the ends of a long one. */
function listOf(values: readonly number[], shown: (value: number) => string): string {
  if (values.length <= 8) return values.map(shown).join(', ');
  const order = values.map((value, rank) => ({ value, rank })).sort((a, b) => a.value - b.value);
  const of = ({ value, rank }: (typeof order)[number]) => `${shown(value)} (rank ${rank})`;
  return `${of(order[0] as (typeof order)[number])} to ${of(order.at(-1) as (typeof order)[number])}`;
}

/** Below this difference of shares, no process holds the others up. */
const EVEN = 0.1;

/** Names the process that waits least: the others wait for it, and its own wait is the exchange alone. */
function blame(shares: readonly number[]): string {
  const [least, most] = [Math.min(...shares), Math.max(...shares)];
  return most - least < EVEN
    ? ''
    : ` (for rank ${shares.indexOf(least)}, which has most to do or is slowest)`;
}
