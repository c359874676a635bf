/** The time that a run worked, by phase, from the wall times that the TensorBoard events have for every line of the log. */
import { join } from 'node:path';
import { readSessions, SESSIONS } from '../run/sessions.js';
import { wallTimesIn } from '../run/tensorboard.js';
import type { MetricLog } from './metric-log.js';

/** Seconds, without the pauses between a stop and a resume. */
export interface RunTimes {
  /** Empty where there are no events, or not those of this log. */
  readonly phases: readonly PhaseTime[];
  /** Sum over the sessions of the run; 0 where it is not known. */
  readonly worked: number;
  readonly paused: { readonly pauses: number; readonly seconds: number };
}

interface PhaseTime {
  readonly phase: string;
  /** From its first line to its last; the phase also took the time before the first. */
  readonly seconds: number;
  /** Until the next phase's first line: saving, loading, making rows. */
  readonly after: number;
}

type Span = readonly [from: number, to: number];

export const NO_TIMES: RunTimes = { phases: [], worked: 0, paused: { pauses: 0, seconds: 0 } };

export function runTimes(run: string, log: MetricLog): RunTimes {
  const times = wallTimesIn(join(run, 'tensorboard'));
  const sessions = readSessions(join(run, SESSIONS)).map(({ begun, ended }, i, all): Span => {
    // A session that was killed, or still runs, ended with what it logged last.
    const next = all[i + 1]?.begun ?? Infinity;
    return [begun, ended ?? Math.max(begun, times.findLast((time) => time < next) ?? begun)];
  });
  const pauses = sessions.slice(1).map(([begun], i): Span => [sessions[i]?.[1] as number, begun]);
  const within = (from: number, to: number) =>
    pauses.reduce((sum, [a, b]) => sum + Math.max(0, Math.min(b, to) - Math.max(a, from)), 0);
  const worked = (from: number, to: number) => Math.max(0, to - from - within(from, to));
  const phases = log.phases.flatMap((phase, i): PhaseTime[] => {
    const [first, last] = phase.lines.map((line) => times[line]);
    if (first === undefined || last === undefined) return [];
    const next = log.phases[i + 1];
    const following = next && times[next.lines[0]];
    const after = following === undefined ? 0 : worked(last, following);
    return [{ phase: phase.name, seconds: worked(first, last), after }];
  });
  const sum = (spans: readonly Span[]) =>
    spans.reduce((total, [from, to]) => total + Math.max(0, to - from), 0);
  return {
    phases,
    worked:
      sessions.length > 0
        ? sum(sessions)
        : phases.reduce((total, { seconds, after }) => total + seconds + after, 0),
    paused: { pauses: pauses.length, seconds: sum(pauses) },
  };
}
