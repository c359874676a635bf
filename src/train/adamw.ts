import { constants } from 'node:buffer';
import type { TrainedParameters } from '../autograd/parameters.js';
import { exchange } from '../cluster/exchange.js';
import { StepTrainError } from '../native/errors.js';
import type { Device } from '../runtime/device.js';
import type { Tensor } from '../runtime/tensor.js';
import { gradientGroups } from './sums/buckets.js';
import { dataParallel, slicedBuffers } from './sums/data-parallel.js';
import { cutSegments, type Slice, sliceOf } from './sums/slices.js';

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

/** Moments of all parameters, in the order of their flat buffer. */
export interface Moments {
  readonly expAvg: Float32Array;
  readonly expAvgSq: Float32Array;
}

/**
 * AdamW (arXiv 1711.05101) over flat f32 buffers: norm, clip, check and update are one launch. With `run.zero` each process of a job
 * holds the moments of a slice of the parameters, updates it, and gets the others (ZeRO stage 1, arXiv 1910.02054): the bits on
 * the CPU are the same.
 */
export class AdamW {
  /** Updates done; the bias correction counts from it. */
  steps = 0;
  private readonly expAvg: Tensor;
  private readonly expAvgSq: Tensor;
  private readonly sizes: Tensor;
  private readonly weightDecay: Tensor;
  private readonly rates: Tensor | undefined;
  private readonly device: Device;
  private readonly slice: Slice;

  constructor(
    readonly parameters: TrainedParameters,
    private readonly options: AdamWOptions,
  ) {
    const { device, list, size } = parameters;
    refuseTooMany(parameters);
    this.device = device;
    const { zero = 0, cluster, carrier } = dataParallel(device) ?? {};
    this.slice = sliceOf(size, zero > 0 ? cluster : undefined, carrier);
    if (this.slice.norm) slicedBuffers.add(parameters);
    const { begin, end } = this.slice;
    parameters.released?.divide(gradientGroups(parameters), begin, end);
    const segments = cutSegments(parameters.offsets, begin, end).map(({ index, length }) => ({
      name: (list[index] as (typeof list)[number]).name,
      length,
    }));
    this.expAvg = device.keep(device.zeros([end - begin]));
    this.expAvgSq = device.keep(device.zeros([end - begin]));
    this.sizes = device.keep(device.tensor(Int32Array.from(segments, ({ length }) => length)));
    const decay = new Float32Array(segments.length).fill(options.weightDecay);
    this.weightDecay = device.keep(device.tensor(decay));
    const { rateOf } = options;
    if (rateOf)
      this.rates = device.keep(device.tensor(Float32Array.from(segments, ({ name }) => rateOf(name))));
  }

  /** Applies the accumulated gradients. Queued; the result resolves when it has run. */
  async step(learningRate: number): Promise<OptimizerStep> {
    const { parameters, slice } = this;
    const { maxGradNorm } = this.options;
    const step = slice.norm
      ? await this.stepOfSlice(learningRate, await slice.norm(this.ownGrads()))
      : await this.update(learningRate, parameters.values, parameters.grads, { max_norm: maxGradNorm });
    if (!step.nonFinite) {
      await slice.share?.(parameters.values);
      this.steps++;
      parameters.changed();
    } else if (!parameters.released) await slice.share?.(parameters.grads); // so that all find values that are not finite
    return step;
  }

  private async stepOfSlice(learningRate: number, norm: number): Promise<OptimizerStep> {
    const { parameters, slice, options } = this;
    const { begin, end } = slice;
    // The op rounds the norm so.
    const gradNorm = Math.fround(norm);
    if (!Number.isFinite(norm)) return { gradNorm, nonFinite: true };
    const clip = options.maxGradNorm > 0 ? Math.min(1, options.maxGradNorm / (norm + 1e-6)) : 1;
    if (end > begin) {
      const [values, grads] = [parameters.values.view(begin, [end - begin]), this.ownGrads()];
      await this.update(learningRate, values, grads, { grad_scale: clip });
      values.dispose();
      grads.dispose();
    }
    return { gradNorm, nonFinite: false };
  }

  /** The gradients of the slice; the caller disposes the tensor. */
  private ownGrads(): Tensor {
    const { grads, released } = this.parameters;
    const { begin, end } = this.slice;
    return released ? grads.alias() : grads.view(begin, [end - begin]);
  }

  /** The first parameter of all whose gradient in the slice of its process is not finite. All call it. */
  async firstNonFinite(): Promise<string | undefined> {
    const { parameters, slice } = this;
    const { begin, end } = slice;
    const { cluster } = dataParallel(this.device) ?? {};
    const grads = this.ownGrads();
    let at = 0;
    let own: string | undefined;
    for (const { index, length } of cutSegments(parameters.offsets, begin, end)) {
      own ??= (await allFinite(grads.view(at, [length]))) ? undefined : parameters.list[index]?.name;
      at += length;
    }
    grads.dispose();
    const all = cluster ? await exchange(cluster, own) : [own];
    return all.find((name) => name !== undefined);
  }

  private async update(
    learningRate: number,
    params: Tensor,
    grads: Tensor,
    scaling: { readonly max_norm?: number; readonly grad_scale?: number },
  ): Promise<OptimizerStep> {
    const { device, options } = this;
    const { stats } = device.ops.adamw({
      params,
      grads,
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
      ...scaling,
    });
    const [gradNorm, , flag] = await stats.readFloats();
    stats.dispose();
    return { gradNorm: gradNorm as number, nonFinite: flag !== 0 };
  }

  /**
   * The moments for a checkpoint. All processes of a job call it; where each holds a slice, rank 0 gets all of them,
   * and the others nothing.
   */
  async moments(): Promise<Moments | undefined> {
    const { collect } = this.slice;
    const whole: Float32Array[] = [];
    for (const own of [this.expAvg, this.expAvgSq]) {
      const values = await own.readFloats();
      const all = collect ? await collect(values) : values;
      if (all) whole.push(all);
    }
    const [expAvg, expAvgSq] = whole;
    return expAvg && expAvgSq && { expAvg, expAvgSq };
  }

  restore({ expAvg, expAvgSq }: Moments, steps: number): void {
    const { begin, end } = this.slice;
    this.expAvg.write(expAvg.subarray(begin, end));
    this.expAvgSq.write(expAvgSq.subarray(begin, end));
    this.steps = steps;
  }

  dispose(): void {
    slicedBuffers.delete(this.parameters);
    for (const tensor of [this.expAvg, this.expAvgSq, this.sizes, this.weightDecay, this.rates])
      tensor?.dispose();
  }
}

/**
 * A checkpoint is written from, and read into, one array for each kind of moments.
 *
 * @param most elements of an array of this Node: 2³² of 20
 * @throws StepTrainError E_CONFIG, before anything is computed that could not be kept
 */
export function refuseTooMany(
  { size }: Pick<TrainedParameters, 'size'>,
  most: number = constants.MAX_LENGTH,
): void {
  if (size > most)
    throw new StepTrainError(
      'E_CONFIG',
      `${size} parameters are trained together, and a checkpoint in this Node (${process.version}) holds the moments of at most ` +
        `${most}: train with lora, or with a Node whose arrays are longer`,
    );
}

/** Takes the window over. */
export async function allFinite(window: Tensor): Promise<boolean> {
  const { stats } = window.device.ops.finite({ x: window });
  const [, count] = await stats.readFloats();
  stats.dispose();
  window.dispose();
  return count === 0;
}
