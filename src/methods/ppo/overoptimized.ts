/** Tells that a policy learned what its reward likes by mistake: the reward rose while fewer problems were solved. */
import { percent } from '../../eval/statistics/percent.js';

/** A fall of validation by fewer standard errors of the difference is noise. */
const MIN_ERRORS = 2;

interface Logged {
  readonly step: number;
  readonly value: number;
}

/**
 * The warning on a finished stage; undefined where there is nothing to say.
 *
 * @param log lines of the run's metrics
 * @param problems of validation
 */
export function overoptimized(
  log: readonly Readonly<Record<string, unknown>>[],
  problems: number,
): string | undefined {
  const own = log.filter(({ phase }) => phase === 'ppo');
  const valuesOf = (key: string): Logged[] =>
    own.flatMap(({ phase_step: step, [key]: value }) =>
      typeof value === 'number' && typeof step === 'number' ? [{ step, value }] : [],
    );
  const validation = valuesOf('accuracy');
  const last = validation.at(-1);
  if (last === undefined || problems === 0) return undefined;
  const best = validation.reduce((a, b) => (b.value > a.value ? b : a));
  const variance = [best, last].map(({ value }) => value * (1 - value)).reduce((a, b) => a + b);
  if (best.value - last.value <= MIN_ERRORS * Math.sqrt(variance / problems)) return undefined;
  const rewards = valuesOf('reward_mean');
  const upTo = rewards.filter(({ step }) => step <= best.step);
  // Nothing is learned before the first rollout batch.
  const before = mean(upTo.length > 0 ? upTo : rewards.slice(0, 1));
  const after = mean(rewards.slice(Math.max(upTo.length, 1)));
  // A mean of none is NaN.
  if (!(after > before)) return undefined;
  const shown = [before, after].map((value) => Number(value.toPrecision(3)));
  return (
    `the mean reward rose from ${shown[0]} up to step ${best.step} to ${shown[1]} after it, and validation fell from ` +
    `${percent(best.value)} % solved at step ${best.step} to ${percent(last.value)} % at the end: the policy learns what the reward likes, ` +
    'not what solves problems; take fewer iterations (ppo.max_iterations), or another reward'
  );
}

const mean = (all: readonly Logged[]) => all.reduce((sum, { value }) => sum + value, 0) / all.length;
