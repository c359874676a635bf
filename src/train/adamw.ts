import type { TrainedParameters } from '../autograd/parameters.js';
import type { Device } from '../runtime/device.js';
import type { Tensor } from '../runtime/tensor.js';

export interface AdamWOptions {
  readonly beta1: number;
  readonly beta2: number;
  readonly epsilon: number;
  /** Decoupled, on every parameter. */
  readonly weightDecay: number;
  /** Global norm to which larger gradients are scaled down; 0 for no clipping. */
  readonly maxGradNorm: number;
  /** Multiplies the learning rate of the named parameter, for example of a head that learns faster. Default 1. */
  readonly rateOf?: ((name: string) => number) | undefined;
}

/** The section keys that every method shares, as options of the optimizer. */
export function adamSettings(section: {
  readonly adam_beta1: number;
  readonly adam_beta2: number;
  readonly adam_epsilon: number;
  readonly weight_decay: number;
  readonly max_grad_norm: number;
}): AdamWOptions {
  return {
    beta1: section.adam_beta1,
    beta2: section.adam_beta2,
    epsilon: section.adam_epsilon,
    weightDecay: section.weight_decay,
    maxGradNorm: section.max_grad_norm,
  };
}

export interface OptimizerStep {
  /** Global norm before clipping. */
  readonly gradNorm: number;
  /** A gradient was NaN or infinite, so nothing was changed. */
  readonly nonFinite: boolean;
}

/** AdamW (arXiv 1711.05101) over flat f32 buffers: norm, clip, check and update are one launch. */
export class AdamW {
  /** Updates done; the bias correction counts from it. */
  steps = 0;
  readonly expAvg: Tensor;
  readonly expAvgSq: Tensor;
  private readonly sizes: Tensor;
  private readonly weightDecay: Tensor;
  private readonly rates: Tensor | undefined;
  private readonly device: Device;

  constructor(
    readonly parameters: TrainedParameters,
    private readonly options: AdamWOptions,
  ) {
    const { device, list, size } = parameters;
    this.device = device;
    this.expAvg = device.keep(device.zeros([size]));
    this.expAvgSq = device.keep(device.zeros([size]));
    this.sizes = device.keep(device.tensor(Int32Array.from(list, ({ value }) => value.size)));
    const decay = new Float32Array(list.length).fill(options.weightDecay);
    this.weightDecay = device.keep(device.tensor(decay));
    const { rateOf } = options;
    if (rateOf) this.rates = device.keep(device.tensor(Float32Array.from(list, ({ name }) => rateOf(name))));
  }

  /** Applies the accumulated gradients. Queued; the result resolves when it has run. */
  async step(learningRate: number): Promise<OptimizerStep> {
    const { device, options, parameters } = this;
    const { stats } = device.ops.adamw({
      params: parameters.values,
      grads: parameters.grads,
      exp_avg: this.expAvg,
      exp_avg_sq: this.expAvgSq,
      sizes: this.sizes,
      weight_decay: this.weightDecay,
      lr_scale: this.rates,
      lr: learningRate,
      beta1: options.beta1,
      beta2: options.beta2,
      eps: options.epsilon,
      step: this.steps + 1,
      max_norm: options.maxGradNorm,
    });
    const [gradNorm, , flag] = await stats.readFloats();
    stats.dispose();
    const nonFinite = flag !== 0;
    if (!nonFinite) {
      this.steps++;
      parameters.changed();
    }
    return { gradNorm: gradNorm as number, nonFinite };
  }

  dispose(): void {
    for (const tensor of [this.expAvg, this.expAvgSq, this.sizes, this.weightDecay, this.rates])
      tensor?.dispose();
  }
}
