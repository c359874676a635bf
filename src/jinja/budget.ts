import { JinjaError } from './errors.js';

/** The steps that a template may take: it ends one that loops without end, however fast the machine is. */
export class Budget {
  private left: number;

  constructor(private readonly steps: number) {
    this.left = steps;
  }

  /** @throws JinjaError when all are spent */
  spend(steps = 1): void {
    this.left -= steps;
    if (this.left < 0) throw new JinjaError(`stopped after ${this.steps} steps; does it loop without end?`);
  }
}
