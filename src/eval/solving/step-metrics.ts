// Metrics of the steps of all samples: a judge's verdicts, repeated steps and trivial steps.
import { stepsOf } from '../../records/steps.js';
import { readableStep } from '../../records/turns.js';
import type { Contributions } from './metrics.js';
import type { GradedSample } from './sample.js';

type JudgedSample = Pick<GradedSample, 'text' | 'right' | 'steps' | 'episode'>;

/**
 * Each problem's additions to each metric, by the metric's name:
 * - `right_and_clean`: samples that are right and have every step judged right; `unjudged_steps`: steps without a
 *   verdict; both only with verdicts
 * - `duplicate_steps`, `trivial_steps`: steps that repeat one of their solution, or compute nothing
 */
export function stepContributions(
  problems: readonly (readonly JudgedSample[])[],
): Map<string, Contributions> {
  const metrics = new Map<string, Contributions>();
  if (problems.some((samples) => samples.some(({ steps }) => steps !== undefined))) {
    metrics.set(
      'right_and_clean',
      sumsOf(problems, ({ right, steps = [] }) => [right && steps.every((step) => step === 1) ? 1 : 0, 1]),
    );
    metrics.set(
      'unjudged_steps',
      sumsOf(problems, ({ steps = [] }) => [steps.filter((step) => step === null).length, steps.length]),
    );
  }
  const steps = (is: (step: string, before: readonly string[]) => boolean) =>
    sumsOf(problems, ({ text, episode }) => {
      const list = episode ? episode.conversation.steps.map(readableStep) : stepsOf(text);
      return [list.filter((step, i) => is(step, list.slice(0, i))).length, list.length];
    });
  metrics.set(
    'duplicate_steps',
    steps((step, before) => before.includes(step)),
  );
  metrics.set('trivial_steps', steps(isTrivial));
  return metrics;
}

/** Says nothing: no figure or formula in it, or the same on both sides of its equals sign. */
function isTrivial(step: string): boolean {
  const [left, right, ...more] = step.split('=').map((side) => side.trim());
  if (right !== undefined && more.length === 0) return left === right;
  return !/[\d\\$]/.test(step);
}

/** Sums over the samples of each problem. */
export function sumsOf<Sample>(
  problems: readonly (readonly Sample[])[],
  part: (sample: Sample) => readonly [sum: number, count: number],
): Contributions {
  const parts = problems.map((samples) => samples.map(part));
  const total = (at: 0 | 1) => parts.map((of) => of.reduce((sum, each) => sum + each[at], 0));
  return { sums: total(0), counts: total(1) };
}
