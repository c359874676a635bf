/**
 * Labels of steps from a model's own continuations (Math-Shepherd, arXiv 2312.08935): of k completions after the steps
 * up to s_h, c reach the right answer; hard label 1[c > 0], soft label c / k. A completion that is cut off counts as
 * not reaching it.
 */
import { grade } from '../../answers/grade.js';
import type { Model } from '../../api/model.js';
import { statesAnswer } from '../../data/label-rules.js';
import type { StepRecord } from '../../records/record.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import { type CompletionOptions, prefixCompletions } from './prefix-completions.js';

export interface RolloutSolution {
  readonly problem: string;
  readonly steps: readonly string[];
  readonly answer: string;
  /** Whether it was cut off: its last step may be incomplete, and it states no answer. */
  readonly cutOff?: boolean;
  /** Key of the random numbers: a solution has the same completions whatever else is labelled with it. */
  readonly index: number;
}

export interface RolloutOptions extends CompletionOptions {
  /** Draw nothing after the first step that no completion gets right from; later steps have no label. Default false. */
  readonly untilWrong?: boolean;
}

/** Steps beyond this many have no label: their number is part of a random key. */
const MAX_STEPS = 256;

/** The prefixes of a solution that are completed: all but a last step that states the answer, which is graded itself. */
export function rolloutPrefixes(solution: Pick<RolloutSolution, 'steps' | 'cutOff'>): number[] {
  const { length } = solution.steps;
  const open = isAnswered(solution) ? length - 1 : length;
  return Array.from({ length: Math.min(open, MAX_STEPS) }, (_, h) => h + 1);
}

function isAnswered({ steps, cutOff = false }: Pick<RolloutSolution, 'steps' | 'cutOff'>): boolean {
  return !cutOff && statesAnswer(steps.at(-1) ?? '');
}

/**
 * The solutions as records with labels and scores, and with an outcome where they state an answer; undefined if the
 * signal stopped it. Prefixes of a solution share their computation.
 */
export async function rolloutLabels(
  model: Pick<Model, 'decoder' | 'adapter'>,
  tokenizer: Tokenizer,
  solutions: readonly RolloutSolution[],
  { untilWrong = false, ...options }: RolloutOptions,
): Promise<StepRecord[] | undefined> {
  const {
    k,
    separator = '\n',
    prompt: { inReasoning },
  } = options;
  const right = solutions.map(() => new Map<number, number>());
  const asked = solutions.flatMap((solution, i) =>
    rolloutPrefixes(solution).map((h) => ({ solution, i, h })),
  );
  const rounds = untilWrong ? [...new Set(asked.map(({ h }) => h))].sort((a, b) => a - b) : [0];
  for (const round of rounds) {
    const now = asked.filter(({ h, i }) => round === 0 || (h === round && (h === 1 || right[i]?.get(h - 1))));
    const prefixes = now.map(({ solution: { problem, steps, index }, h }) => ({
      problem,
      text: steps.slice(0, h).join(separator) + separator,
      key: index * MAX_STEPS + h,
    }));
    const completions = await prefixCompletions(model, tokenizer, prefixes, options);
    if (!completions) return undefined;
    now.forEach(({ solution: { answer }, i, h }, p) => {
      const { text: before = '' } = prefixes[p] ?? {};
      const found = completions[p] ?? [];
      if (found.length === 0) return;
      const reached = found.filter(
        ({ text, ended }) => grade(before + text, answer, { ended, inReasoning }).correct,
      );
      right[i]?.set(h, reached.length);
    });
  }
  return solutions.map((solution, i) => recordOf(solution, right[i] as Map<number, number>, k));
}

function recordOf(solution: RolloutSolution, right: ReadonlyMap<number, number>, k: number): StepRecord {
  const { problem, steps, answer } = solution;
  const last = steps.at(-1) ?? '';
  const outcome = isAnswered(solution) ? (grade(last, answer).correct ? 1 : 0) : undefined;
  return {
    problem,
    gold_answer: answer,
    steps: steps.map((text, j) => {
      const isLast = j === steps.length - 1 && outcome !== undefined;
      const count = isLast ? outcome * k : right.get(j + 1);
      if (count === undefined) return { text, label: null, kind: 'normal' };
      return { text, label: count > 0 ? 1 : 0, score: count / k, kind: 'normal' };
    }),
    ...(outcome === undefined ? {} : { outcome }),
  };
}
