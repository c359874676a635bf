/**
 * Unfinished solutions brought to their end by a generator, and graded. In data such as PRM800K wrong solutions mostly end at
 * their error, so that a model of outcomes would learn who is finished; completed, they state an answer like the right ones.
 */
import { grade } from '../../answers/grade.js';
import type { Model } from '../../api/model.js';
import { outcomeOfAnswer, statesAnswer } from '../../data/label-rules.js';
import type { RowSolution } from '../../data/solution-rows.js';
import type { StepLabel, StepRecord } from '../../records/record.js';
import { stepsOf } from '../../records/steps.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import { type CompletionOptions, prefixCompletions } from './prefix-completions.js';

export type UnfinishedSolution = Omit<RowSolution, 'answer'> & {
  readonly answer: string;
  /** Keys the random numbers. */
  readonly index: number;
};

/** Whether a solution was cut off, has no known outcome and states no answer that could be graded. */
export function isUnfinished({ steps, cutOff, outcome }: Omit<RowSolution, 'answer'>): boolean {
  return outcome === undefined && (cutOff || !statesAnswer(steps.at(-1) ?? ''));
}

/**
 * Records with an outcome: finished solutions as they are, the others with the first of their completions that comes to an end.
 * Steps keep their labels; those that were added have none. Where no completion ends, the solution stays unfinished and has no
 * outcome. Undefined if the signal stopped it.
 */
export async function completedSolutions(
  model: Pick<Model, 'decoder' | 'adapter'>,
  tokenizer: Tokenizer,
  solutions: readonly UnfinishedSolution[],
  options: CompletionOptions,
): Promise<StepRecord[] | undefined> {
  const {
    separator = '\n',
    prompt: { inReasoning },
  } = options;
  const open = solutions.filter(isUnfinished);
  const completions = await prefixCompletions(
    model,
    tokenizer,
    open.map((solution) => ({
      problem: solution.problem,
      text: wholeSteps(solution)
        .map((step) => step + separator)
        .join(''),
      key: solution.index,
    })),
    options,
  );
  if (!completions) return undefined;
  const endings = new Map(
    open.map((solution, i) => [solution, completions[i]?.find(({ ended }) => ended)?.text] as const),
  );
  return solutions.map((solution) => {
    const { steps, answer, outcome } = solution;
    if (!isUnfinished(solution))
      return { ...recordOf(solution), outcome: outcome ?? outcomeOfAnswer(steps.at(-1) ?? '', answer) };
    const ending = endings.get(solution);
    if (ending === undefined) return recordOf(solution);
    const whole = completed(solution, ending);
    return {
      ...recordOf(whole),
      outcome: grade(whole.steps.join('\n'), answer, { inReasoning }).correct ? 1 : 0,
    };
  });
}

function completed(solution: UnfinishedSolution, ending: string): UnfinishedSolution {
  const kept = wholeSteps(solution);
  const labels = solution.labels?.slice(0, kept.length) ?? [];
  return { ...solution, steps: [...kept, ...stepsOf(ending)], labels, cutOff: false };
}

/** The last step of a solution that was cut off may be half a step: it is written anew. */
function wholeSteps({ steps, cutOff }: UnfinishedSolution): readonly string[] {
  return cutOff ? steps.slice(0, -1) : steps;
}

function recordOf({ problem, answer, steps, labels }: UnfinishedSolution): StepRecord {
  const label = (i: number): StepLabel => labels?.[i] ?? null;
  return {
    problem,
    gold_answer: answer,
    steps: steps.map((text, i) => ({ text, label: label(i), kind: 'normal' })),
  };
}
