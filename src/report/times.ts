/** Duration of each phase, from the wall times that the TensorBoard events have for every line of the log. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { scalarWallTimes } from '../run/tfevents.js';
import type { MetricLog } from './metric-log.js';

export interface PhaseTime {
  readonly phase: string;
  /** Seconds from its first line to its last; the phase also took the time before the first. */
  readonly seconds: number;
  /** Until the next phase's first line: saving, loading, making rows. */
  readonly after: number;
}

/** Empty where there are no events, or not those of this log. */
export function phaseTimes(run: string, log: MetricLog): PhaseTime[] {
  const folder = join(run, 'tensorboard');
  if (!existsSync(folder)) return [];
  const file = readdirSync(folder)
    .filter((name) => name.startsWith('events.out.tfevents.'))
    .sort()
    .at(-1);
  if (file === undefined) return [];
  const times = scalarWallTimes(readFileSync(join(folder, file)));
  const at = (line: number) => times[line];
  return log.phases.flatMap((phase, i): PhaseTime[] => {
    const [first, last] = [at(phase.lines[0]), at(phase.lines[1])];
    if (first === undefined || last === undefined) return [];
    const next = log.phases[i + 1];
    const following = next && at(next.lines[0]);
    return [
      {
        phase: phase.name,
        seconds: Math.max(0, last - first),
        after: following === undefined ? 0 : Math.max(0, following - last),
      },
    ];
  });
}
