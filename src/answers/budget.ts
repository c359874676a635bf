// Limit on one comparison, counted in operations, so that the verdict never depends on the machine or its load.

/** The comparison has used up its steps. */
export class BudgetExceeded extends Error {
  override readonly name = 'BudgetExceeded';
}

/** About 0.1 s of one core; ordinary answers need fewer than 500. */
export const DEFAULT_STEPS = 100_000;

/** Counts down; a step is about one token, one term of a polynomial or one product of machine words. */
export class StepBudget {
  private left: number;

  constructor(readonly steps: number = DEFAULT_STEPS) {
    this.left = steps;
  }

  get used(): number {
    return this.steps - this.left;
  }

  spend(steps = 1): void {
    this.left -= steps;
    if (this.left < 0) throw new BudgetExceeded(`more than ${this.steps} steps`);
  }
}
