/** Interleaved trials: ours, then each setting of the rival, then ours again, every round in fresh processes. */
import { loadavg } from 'node:os';
import type { Group, RivalCase } from './cases.js';
import { type Rival, rivalTrial } from './rival.js';
import { median, type Spread, spread } from './statistics.js';
import type { TrialReply } from './trial.js';
import { ourTrial, type TrialProcess } from './trial-process.js';

export interface Measured {
  /** Seconds of one run, by trial. */
  readonly seconds: readonly number[];
  readonly spread: Spread;
  readonly peakBytes: Spread;
  /** Processes that ran or waited to run, of the last minute, as each trial began: above the number of cores others took their share. */
  readonly load?: Spread;
}

export interface CaseResult {
  readonly item: RivalCase;
  /** A sentence where it could not be measured. */
  readonly ours: Measured | string;
  /** By setting. */
  readonly rival: Readonly<Record<string, Measured | string>>;
}

type Trial = TrialReply & { readonly load: number };

/** Settings that take more than this many times the fastest in the first round are not timed again. */
const HOPELESS = 1.3;

/** The limits of the group come first. */
export async function measureGroup(
  group: Group,
  rival: Rival | undefined,
  { pairs, seconds }: { readonly pairs: number; readonly seconds: number },
  progress: (text: string) => void,
): Promise<readonly CaseResult[]> {
  const contestants = ['', ...(rival ? group.settings : [])];
  const cases = [...(group.limits ?? []), ...group.cases];
  const limits = cases.length - group.cases.length;
  const trials = cases.map(() => new Map(contestants.map((name) => [name, [] as Trial[]])));
  const dropped = cases.map(() => new Set<string>());
  // Round 0 counts only for finding the rival's settings that are worth timing.
  for (let round = rival && contestants.length > 2 ? 0 : 1; round <= pairs; round++) {
    const processes = new Map<string, TrialProcess>(
      contestants.map((name) => [name, name === '' || !rival ? ourTrial() : rivalTrial(rival)]),
    );
    for (const [i, item] of cases.entries()) {
      for (const [setting, process] of processes) {
        if (dropped[i]?.has(setting) || (round === 0 && setting === '')) continue;
        // One way of the rival is enough for the limits.
        if (i < limits && setting !== '' && setting !== group.settings[0]) continue;
        progress(`${group.title}: ${item.name}, ${setting || 'ours'}, round ${round} of ${pairs}`);
        const [load = 0] = loadavg();
        const reply = await process.request({ item, setting, seconds });
        trials[i]?.get(setting)?.push({ ...reply, load });
        // A process that held one case alone ends before the next begins, so that memory is its own.
        if (cases.length === 1) await process.close();
      }
      if (round === 0) {
        const probe = trials[i] as Map<string, Trial[]>;
        for (const setting of hopeless(probe)) dropped[i]?.add(setting);
        for (const [setting, replies] of probe) if (!dropped[i]?.has(setting)) replies.length = 0;
      }
    }
    for (const process of processes.values()) await process.close();
  }
  return cases.map((item, i) => {
    const tried = [...(trials[i] as Map<string, Trial[]>)].filter(([, replies]) => replies.length > 0);
    const results = tried.map(([setting, replies]) => [setting, summary(replies)] as const);
    const [[, ours], ...rivals] = results as [(typeof results)[number], ...typeof results];
    return { item, ours, rival: Object.fromEntries(rivals) };
  });
}

function hopeless(probe: ReadonlyMap<string, readonly TrialReply[]>): string[] {
  const times = [...probe].flatMap(([setting, [reply]]) =>
    reply && 'samples' in reply ? [{ setting, time: median(reply.samples) }] : [],
  );
  const fastest = Math.min(...times.map(({ time }) => time));
  return times.filter(({ time }) => time > HOPELESS * fastest).map(({ setting }) => setting);
}

function summary(replies: readonly Trial[]): Measured | string {
  const failed = replies.find((reply) => 'error' in reply);
  if (failed) return failed.error;
  const good = replies.filter((reply) => 'samples' in reply);
  const seconds = good.map(({ samples }) => median(samples));
  return {
    seconds,
    spread: spread(seconds),
    peakBytes: spread(good.map(({ peakBytes }) => peakBytes)),
    load: spread(good.map(({ load }) => load)),
  };
}
