/** Continuations of a model after a wrong step and after a right one, from held-out prefixes. */
import { grade } from '../../answers/grade.js';
import type { CorrectionWriter } from '../../data/corrections/layout.js';
import type { PrefixMetrics } from '../../eval/solving/corrections.js';
import { type MetricValue, metricValues } from '../../eval/solving/metrics.js';
import { SHARE_DIFFERENCE } from '../../eval/statistics/bootstrap.js';
import type { StepRecord } from '../../records/record.js';
import { sameResult } from '../result.js';
import type { Continuation, DrawSettings, StepSampler } from '../sampler.js';

/** A right beginning with a wrong step, and with the right one in its place. */
export interface HeldOutStep {
  readonly problem: string;
  readonly answer: string;
  /** The right steps before it. */
  readonly before: readonly string[];
  readonly wrong: string;
  /** The right step in its place. */
  readonly right: string;
}

/** The first wrong step of a record with its improvement; undefined for a record without them, or with a whole wrong solution. */
export function heldOutStep({ problem, gold_answer: answer, steps }: StepRecord): HeldOutStep | undefined {
  const at = steps.findIndex(({ kind }) => kind === 'wrong');
  const right = steps.find(({ kind }) => kind === 'improvement')?.text;
  const isOne = steps.filter(({ kind }) => kind === 'wrong').length === 1;
  if (at < 0 || right === undefined || answer === undefined || !isOne) return undefined;
  return {
    problem,
    answer,
    before: steps.slice(0, at).map(({ text }) => text),
    wrong: steps[at]?.text ?? '',
    right,
  };
}

/**
 * Continues each beginning greedily after its wrong and after its right step.
 *
 * @returns undefined if the signal stopped it
 */
export async function prefixMetrics(
  steps: readonly HeldOutStep[],
  sampler: StepSampler,
  writer: Pick<CorrectionWriter, 'read'>,
  settings: Pick<DrawSettings, 'max_new_tokens'>,
  signal?: AbortSignal,
): Promise<PrefixMetrics | undefined> {
  const greedy = { ...settings, temperature: 0, top_p: 1 };
  const after = (which: 'wrong' | 'right') =>
    sampler.continuations(
      steps.map(({ problem, before, [which]: step }, id) => ({ problem, steps: [...before, step], id })),
      1,
      greedy,
      which,
      signal,
    );
  const wrong = await after('wrong');
  const right = wrong && (await after('right'));
  if (!right) return undefined;
  const outcome = (which: 'wrong' | 'right', drawn: readonly (readonly Continuation[])[]) =>
    steps.map(({ answer, ...step }, i) => {
      const { text = '', ended = false } = drawn[i]?.[0] ?? {};
      // A reflection is read as one only after a step.
      const [, next, after] = writer.read(`${step[which]}${sampler.separator}${text}`);
      const whole = text.trim() === '' ? step[which] : text;
      return {
        triggered: next?.kind === 'reflection',
        improved:
          next?.kind === 'reflection' && after?.kind === 'improvement' && sameResult(after.text, step.right),
        isRight: grade(lastStep(whole, writer), answer, { ended }).correct,
      };
    });
  const [bad, good] = [outcome('wrong', wrong), outcome('right', right)];
  const share = (outcomes: typeof bad, is: (each: (typeof bad)[number]) => boolean) =>
    outcomes.length === 0 ? 0 : outcomes.filter(is).length / outcomes.length;
  return {
    prefixes: steps.length,
    trigger_rate: share(bad, ({ triggered }) => triggered),
    fix_rate: share(bad, ({ isRight }) => isRight),
    repair_rate: share(bad, ({ improved }) => improved),
    triggered_fix_rate: share(bad, ({ triggered, isRight }) => triggered && isRight),
    false_trigger_rate: share(good, ({ triggered }) => triggered),
    trigger_difference: meanDifference(
      steps.map(({ problem }, i) => [problem, Number(bad[i]?.triggered) - Number(good[i]?.triggered)]),
    ),
    spoil_rate: share(good, ({ triggered, improved }) => triggered && !improved),
    right_rate: share(good, ({ isRight }) => isRight),
    harm_rate: share(good, ({ triggered, isRight }) => triggered && !isRight),
  };
}

/** Mean of differences with its interval over the problems that they belong to. */
function meanDifference(values: readonly (readonly [problem: string, value: number])[]): MetricValue {
  const problems = [...new Set(values.map(([problem]) => problem))];
  const own = problems.map((name) => values.filter(([problem]) => problem === name));
  const sums = own.map((list) => list.reduce((sum, [, value]) => sum + value, 0));
  const counts = own.map((list) => list.length);
  return metricValues(new Map([['mean', { sums, counts, range: SHARE_DIFFERENCE }]])).mean as MetricValue;
}

/** The final answer is read from the end: an abandoned step may hold an earlier one. */
function lastStep(text: string, writer: Pick<CorrectionWriter, 'read'>): string {
  return writer.read(text).at(-1)?.text ?? text;
}
