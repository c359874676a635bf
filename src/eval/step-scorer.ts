/** Scores of the steps of solutions: what verdict models, reward networks and reward models have in common. */

export interface StepSolution {
  readonly problem: string;
  readonly steps: readonly string[];
}

export interface StepScores {
  /** Of each step; null where its sequence is longer than the scorer reads. */
  readonly scores: readonly (number | null)[];
  /** That were read. */
  readonly tokens: number;
}

/** A new kind of reward model is served once it implements this. */
export interface StepScorer {
  /** What a score is, where more is better: the probability that a step is right, or a reward without bounds. */
  readonly scale: 'probability' | 'reward';
  /** By solution; undefined if the signal stopped it. A score depends on its own solution alone. */
  score(
    solutions: readonly StepSolution[],
    options?: { readonly signal?: AbortSignal },
  ): Promise<readonly StepScores[] | undefined>;
}

/** Scores by step from those of the steps that were judged. */
export function scoresByStep(
  { steps }: StepSolution,
  judged: Iterable<readonly [step: number, score: number]>,
): (number | null)[] {
  const found = new Map(judged);
  return steps.map((_, step) => found.get(step) ?? null);
}
