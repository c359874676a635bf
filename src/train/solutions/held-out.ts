/** Solved shares of held-out problems, by group and before and after training. */
import { contributions, metricValues } from '../../eval/solving/metrics.js';
import type { SolvedGroups } from '../../eval/solving/run-report.js';
import type { GradedSample, SamplePlace } from '../../eval/solving/sample.js';
import { stepContributions } from '../../eval/solving/step-metrics.js';
import { grouped } from '../../native/grouped.js';
import { stepsOf } from '../../records/steps.js';
import { readableStep } from '../../records/turns.js';
import { oracleScorer } from '../../scoring/oracle.js';
import { type Solution, sampled, verdictsOf } from '../../scoring/scorer.js';
import type { AskedPart } from './asked.js';
import { type LocalSolutionsOptions, localSolutions } from './local-solutions.js';
import { gradeSolution, type RunProblem } from './problems.js';
import { isSolved, type SampledSolution } from './solution-source.js';

export interface SolveOptions extends LocalSolutionsOptions {
  /** Solutions of each problem: one is greedy, several are sampled. */
  readonly n: number;
  /** Default: 0 for one solution, 1 for several. */
  readonly temperature?: number;
  readonly signal: AbortSignal;
}

/** Numbers the round of an evaluation apart from all of training. */
const EVALUATION = 2 ** 32 - 1;

/** Graded samples by problem; a problem that does not fit counts as wrong. Undefined if the signal stopped it. */
export async function solveHeldOut(
  { problems, prompts }: AskedPart,
  { n, temperature = n === 1 ? 0 : 1, signal, ...options }: SolveOptions,
): Promise<GradedSample[][] | undefined> {
  const sampling = {
    ...options.sampling,
    num_generations: n,
    temperature,
    top_p: 1,
    top_k: 0,
    min_p: 0,
  };
  const asked = prompts.flatMap((prompt) => (prompt ? [prompt] : []));
  const drawn = await localSolutions({ ...options, sampling }).sample(asked, {
    iteration: EVALUATION,
    counts: true,
    signal,
  });
  if (!drawn) return undefined;
  let next = 0;
  return problems.map((problem, i) => {
    const own = prompts[i] ? (drawn[next++] as readonly SampledSolution[]) : [];
    return Array.from({ length: n }, (_, sample) =>
      gradedSample(problem, { problem: i, sample, prompt: '' }, own[sample]),
    );
  });
}

/** @param solution absent for a problem that leaves no room for one, which counts as wrong */
export function gradedSample<Place extends SamplePlace>(
  problem: RunProblem,
  place: Place,
  solution: SampledSolution | undefined,
): Place & Omit<GradedSample, 'prompt'> {
  if (!solution)
    return { ...place, text: '', tokens: 0, finish_reason: 'too_long', answer: null, right: false };
  const { text, tokens, finishReason, turns } = solution;
  const { got, correct: answersRight } = gradeSolution(problem, text, finishReason === 'stop');
  const solved = isSolved(turns);
  const correct = solved ?? answersRight;
  return {
    ...place,
    text,
    tokens: tokens.length,
    finish_reason: finishReason,
    answer: solvedAs(solved, problem.answer) ?? got,
    right: correct,
    ...(turns ? { episode: { conversation: turns.conversation, rewards: turns.rewards } } : {}),
  };
}

/** The answer that votes count: an episode that its environment pays for has that of the problem, and all others share one. */
const solvedAs = (solved: boolean | undefined, answer: string) =>
  solved === undefined ? undefined : solved ? answer : 'not solved';

/** The samples with the exact verdicts on their steps, where every problem was generated; otherwise as they are. */
export async function judgedByOracle(
  problems: readonly RunProblem[],
  samples: readonly (readonly GradedSample[])[],
): Promise<readonly (readonly GradedSample[])[]> {
  if (problems.some(({ generated }) => generated === undefined)) return samples;
  const solutions = samples.flatMap((own, i) =>
    own.map((sample): Solution => {
      const turns = sample.episode?.conversation;
      const steps = turns ? turns.steps.map(readableStep) : stepsOf(sample.text);
      return { ...sampled(problems[i] as RunProblem, sample, steps), ...(turns ? { turns } : {}) };
    }),
  );
  const verdicts = await verdictsOf(oracleScorer)(solutions);
  let next = 0;
  return samples.map((own) => own.map((sample) => ({ ...sample, steps: verdicts[next++] ?? [] })));
}

export function solvedByGroup(
  problems: readonly RunProblem[],
  samples: readonly (readonly GradedSample[])[],
): SolvedGroups {
  const groups = grouped(problems.keys(), (i) => problems[i]?.group);
  const named = [...groups].sort(([a], [b]) => (a < b ? -1 : 1));
  const valuesOf = (of: readonly (readonly GradedSample[])[]) =>
    metricValues(new Map([...contributions(of), ...stepContributions(of)]));
  return Object.fromEntries([
    ['all', valuesOf(samples)],
    ...named.map(([name, of]) => [name, valuesOf(of.map((i) => samples[i] ?? []))]),
  ]);
}

/** Share of problems whose sample is right. */
export function accuracyOf(samples: readonly (readonly GradedSample[])[]): number {
  const all = samples.flat();
  return all.length === 0 ? 0 : all.filter(({ right }) => right).length / all.length;
}
