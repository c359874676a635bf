/** The balance α between reinforcement and constraint (equation 12 of StepAMC), and the update of α where it is learned. */
import { log, power } from '../../native/elementary.js';
import { probability } from '../../scoring/verdict/judged.js';
import type { ConstraintConfig } from './config.js';

/** Factors of a total loss: policy·L_policy + value·L_value + constraint·L_constraint. */
export type LossWeights = Readonly<Record<'policy' | 'value' | 'constraint', number>>;

interface AlphaState {
  /** The learned parameter behind α, a logit. */
  readonly raw: number;
  readonly mean: number;
  readonly square: number;
  readonly steps: number;
}

const [BETA1, BETA2, EPSILON] = [0.9, 0.999, 1e-8];

export class AlphaBalance {
  private state: AlphaState;

  constructor(private readonly settings: ConstraintConfig['alpha']) {
    const { init, lo, hi } = settings;
    const share = (init - lo) / (hi - lo);
    const raw = log(share / (1 - share));
    this.state = { raw: Number.isFinite(raw) ? raw : 0, mean: 0, square: 0, steps: 0 };
  }

  value(): number {
    const { mode, init, lo, hi } = this.settings;
    return mode === 'fixed' ? init : lo + (hi - lo) * probability(this.state.raw);
  }

  weights(): LossWeights {
    const alpha = this.value();
    return { policy: alpha, value: alpha, constraint: 1 - alpha };
  }

  /** Updates a learned α by Adam on the gradient of the total loss; the value loss, which already has its coefficient, is left out of it. */
  learn({ policy, constraint }: { readonly policy: number; readonly constraint: number }): void {
    const { mode, lo, hi, learning_rate } = this.settings;
    if (mode === 'fixed') return;
    const s = probability(this.state.raw);
    // Without the value loss: how far the critic is off says nothing about the balance.
    const gradient = (policy - constraint) * (hi - lo) * s * (1 - s);
    const steps = this.state.steps + 1;
    const mean = BETA1 * this.state.mean + (1 - BETA1) * gradient;
    const square = BETA2 * this.state.square + (1 - BETA2) * gradient * gradient;
    const direction =
      mean / (1 - power(BETA1, steps)) / (Math.sqrt(square / (1 - power(BETA2, steps))) + EPSILON);
    this.state = { raw: this.state.raw - learning_rate * direction, mean, square, steps };
  }

  save(): AlphaState {
    return this.state;
  }

  restore(state: unknown): void {
    this.state = state as AlphaState;
  }
}
