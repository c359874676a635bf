/**
 * The draws of one body's replayed steps, at fixed addresses: a recording for one number of rows finds the draws of
 * another.
 */
import type { Device } from '../../runtime/device.js';
import type { Tensor } from '../../runtime/tensor.js';

/** Windows for R rows, of R values each unless noted. */
export interface DrawViews {
  /** i32 */
  readonly tokens: Tensor;
  /** i32 */
  readonly status: Tensor;
  /** i32: tokens of each row before the drawn one. */
  readonly lengths: Tensor;
  /** f32, under the model, at the temperature, and under the distribution that is drawn from. */
  readonly logprobs: Tensor;
  readonly tempered: Tensor;
  readonly sampling: Tensor;
  /** i32 [2 · R]: tokens and statuses. */
  readonly integers: Tensor;
  /** f32 [3 · R]: the three kinds of log-probs. */
  readonly floats: Tensor;
}

export class StepDraws {
  /** i32 [most]: the tokens, whatever the number of rows. */
  readonly tokens: Tensor;
  private readonly integers: Tensor;
  private readonly floats: Tensor;
  private readonly views = new Map<number, DrawViews>();

  /** Holds its memory until `dispose`. */
  constructor(
    private readonly device: Device,
    readonly most: number,
  ) {
    this.integers = device.keep(device.zeros([3 * most], 'i32'));
    this.floats = device.keep(device.zeros([3 * most]));
    this.tokens = device.keep(this.integers.view(0, [most]));
  }

  of(rows: number): DrawViews {
    const known = this.views.get(rows);
    if (known) return known;
    const part = (of: Tensor, from: number, count: number) =>
      this.device.keep(of.view(from * rows, [count * rows]));
    const { integers, floats } = this;
    const made = {
      tokens: part(integers, 0, 1),
      status: part(integers, 1, 1),
      // Lengths lie behind the tokens of the largest number of rows: a step writes them while it still reads draws of
      // more rows before it.
      lengths: this.device.keep(integers.view(2 * this.most, [rows])),
      logprobs: part(floats, 0, 1),
      tempered: part(floats, 1, 1),
      sampling: part(floats, 2, 1),
      integers: part(integers, 0, 2),
      floats: part(floats, 0, 3),
    };
    this.views.set(rows, made);
    return made;
  }

  dispose(): void {
    for (const views of this.views.values()) for (const tensor of Object.values(views)) tensor.dispose();
    for (const tensor of [this.integers, this.floats, this.tokens]) tensor.dispose();
  }
}
