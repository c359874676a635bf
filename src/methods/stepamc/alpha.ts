/** The balance α between reinforcement and constraint: the readings of equation 12 of StepAMC, and the update of α. */
import { probability } from '../../scoring/verdict/judged.js';
import type { ConstraintConfig } from './config.js';

/** Losses of one optimizer step; `value` already has its coefficient. */
export type StepLosses = Readonly<Record<'policy' | 'value' | 'constraint', number>>;

/** Factors of a total loss: policy·L_policy + value·L_value + constraint·L_constraint. */
export type LossWeights = StepLosses;

interface AlphaState {
  /** The learned parameter behind α: a logit, or the log of the constraint's variance. */
  readonly raw: number;
  readonly mean: number;
  readonly square: number;
  readonly steps: number;
}

const [BETA1, BETA2, EPSILON] = [0.9, 0.999, 1e-8];

export class AlphaBalance {
  private state: AlphaState;

  constructor(
    private readonly settings: Pick<ConstraintConfig, 'combine' | 'alpha'>,
    private readonly totalSteps: number,
  ) {
    const { mode, init, lo, hi } = settings.alpha;
    const share = (init - lo) / (hi - lo);
    const raw = mode === 'uncertainty' ? -Math.log(1 - init) : Math.log(share / (1 - share));
    this.state = { raw: Number.isFinite(raw) ? raw : 0, mean: 0, square: 0, steps: 0 };
  }

  /** α at optimizer step `step`; in `uncertainty` mode 1 − the constraint's weight, which may be negative. */
  value(step: number): number {
    const { mode, init, final, lo, hi } = this.settings.alpha;
    switch (mode) {
      case 'fixed':
        return init;
      case 'schedule':
        return init + ((final - init) * step) / Math.max(1, this.totalSteps - 1);
      case 'learnable_clamped':
        return lo + (hi - lo) * probability(this.state.raw);
      case 'uncertainty':
        return 1 - Math.exp(-this.state.raw);
    }
  }

  weights(step: number): LossWeights {
    const alpha = this.value(step);
    const constraint = 1 - alpha;
    if (this.settings.alpha.mode === 'uncertainty') return { policy: 1, value: 1, constraint };
    switch (this.settings.combine) {
      case 'rl':
        return { policy: alpha, value: alpha, constraint };
      case 'policy':
        return { policy: alpha, value: 1, constraint };
      case 'constraint':
        return { policy: 1, value: 1, constraint };
    }
  }

  /** Updates a learned α by Adam on the gradient of the total loss. */
  learn(losses: Omit<StepLosses, 'value'> & Partial<StepLosses>): void {
    const gradient = this.gradient(losses);
    if (gradient === undefined) return;
    const steps = this.state.steps + 1;
    const mean = BETA1 * this.state.mean + (1 - BETA1) * gradient;
    const square = BETA2 * this.state.square + (1 - BETA2) * gradient * gradient;
    const direction = mean / (1 - BETA1 ** steps) / (Math.sqrt(square / (1 - BETA2 ** steps)) + EPSILON);
    const raw = this.state.raw - this.settings.alpha.learning_rate * direction;
    this.state = { raw, mean, square, steps };
  }

  /** Derivative by the learned parameter of the total loss without its value loss. */
  private gradient({ policy, constraint }: Omit<StepLosses, 'value'>): number | undefined {
    const { mode, lo, hi } = this.settings.alpha;
    if (mode === 'uncertainty') return 1 - Math.exp(-this.state.raw) * constraint;
    if (mode !== 'learnable_clamped') return undefined;
    const s = probability(this.state.raw);
    // Without the value loss: how far the critic is off says nothing about the balance.
    const weighed = this.settings.combine === 'constraint' ? 0 : policy;
    return (weighed - constraint) * (hi - lo) * s * (1 - s);
  }

  save(): AlphaState {
    return this.state;
  }

  restore(state: unknown): void {
    this.state = state as AlphaState;
  }
}
