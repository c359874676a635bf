/**
 * The loss that keeps a router from sending all tokens to the same experts (arXiv 2101.03961, equations 4 to 6), over all layers of a
 * forward together, as transformers has it:
 *
 *     loss = E · Σ_e f_e · P_e      f_e: choices of expert e, P_e: sum of its probabilities, both over the number of rows
 *
 * with a row for each token and layer. It is k where the k choices of each token are spread evenly. Choices have no gradient.
 */
import type { Disposable, Tape } from '../autograd/tape.js';
import type { Routing } from '../ops/experts.js';
import type { Device } from '../runtime/device.js';
import type { Tensor } from '../runtime/tensor.js';
import { nll } from './nll.js';

export class ExpertBalance implements Disposable {
  private readonly made: Tensor[] = [];
  private sums: { readonly choices: Tensor; readonly mass: Tensor; readonly gradient: Tensor } | undefined;
  private rows = 0;
  private counts = true;

  constructor(private readonly device: Device) {}

  /**
   * f32 [E]: the gradient of each probability, which is the same in all rows. It depends on the choices of every layer, and so is
   * computed when the backward begins.
   */
  gradient(experts: number): Tensor {
    if (!this.sums) {
      const zeros = (shape: readonly number[]) => {
        const tensor = this.device.keep(this.device.zeros(shape));
        this.made.push(tensor);
        return tensor;
      };
      const column = [experts, 1];
      this.sums = { choices: zeros(column), mass: zeros(column), gradient: zeros([experts]) };
    }
    return this.sums.gradient;
  }

  /**
   * Counts the experts that a layer's router chose by its logits [T, E]. Nothing is counted once `loss` is made: a
   * layer that runs again was counted.
   */
  add(logits: Tensor, { experts }: Routing): void {
    if (!this.counts || !this.sums) return;
    const { device, sums } = this;
    const [tokens = 0, count = 0] = logits.shape;
    this.rows += tokens;
    device.scope(() => {
      const ones = device.empty([experts.size, 1]);
      device.ops.fill({ x: ones, value: 1 });
      device.ops.embedding_backward({ dy: ones, ids: flat(experts), dweight: sums.choices });
      // Choosing all experts makes the weights all probabilities.
      const { ops } = device;
      const all = ops.route({ logits, k: count, normalise: false, P: count });
      const dy = all.weights.reshape([tokens * count, 1]);
      ops.embedding_backward({ dy, ids: flat(all.experts), dweight: sums.mass });
    });
  }

  /** f32 [1], recorded on `tape`, which disposes this with its backward; undefined where no layer has experts. */
  loss(tape: Tape): Tensor | undefined {
    const { device, sums, rows } = this;
    this.counts = false;
    tape.hold(this);
    if (!sums || rows === 0) return undefined;
    const experts = sums.gradient.size;
    return device.scope(() => {
      const [choices, mass] = [sums.choices.reshape([experts]), sums.mass.reshape([experts])];
      tape.record(mass, { into: sums.gradient }, (dmass, { into }) => {
        device.ops.axpy({ y: into, x: dmass, factor: 1 });
      });
      return nll(mass, device.ops.scale({ x: choices, factor: -experts / (rows * rows) }).y);
    });
  }

  dispose(): void {
    for (const tensor of this.made.splice(0)) tensor.dispose();
  }
}

const flat = (tensor: Tensor) => tensor.reshape([tensor.size]);
