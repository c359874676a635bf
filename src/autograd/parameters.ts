/** Parameters, frozen or trainable, and the flat buffers in which the trainable ones live for the optimizer. */
import { StepTrainError } from '../native/errors.js';
import type { Device } from '../runtime/device.js';
import type { Tensor } from '../runtime/tensor.js';

export interface Parameter {
  readonly name: string;
  /** Frozen: f32 or bf16, row-major or packed. Trainable: an f32 master, a window on the flat buffer. */
  readonly value: Tensor;
  /** f32, same shape: backward adds into it. Only trainable parameters have one. */
  readonly grad?: Tensor;
}

export interface ParameterSpec {
  readonly name: string;
  readonly shape: readonly number[];
  /** Initial values, row-major. */
  readonly init: Float32Array;
}

/**
 * Trainable parameters in one f32 buffer, their gradients in another, so that the optimizer is one launch.
 * Owns everything it hands out.
 */
export class TrainableParameters {
  readonly values: Tensor;
  readonly grads: Tensor;
  readonly list: readonly Parameter[];
  /** Where each parameter begins in the flat buffers; the last entry is their length. */
  readonly offsets: readonly number[];
  private readonly byName: ReadonlyMap<string, Parameter>;

  constructor(
    readonly device: Device,
    specs: readonly ParameterSpec[],
  ) {
    const offsets = [0];
    for (const { name, shape, init } of specs) {
      const size = shape.reduce((product, extent) => product * extent, 1);
      if (init.length !== size) {
        throw new StepTrainError('E_SHAPE', `parameter ${name}: expected ${size} values, got ${init.length}`);
      }
      offsets.push((offsets.at(-1) as number) + size);
    }
    this.offsets = offsets;
    const total = offsets.at(-1) as number;
    this.values = device.keep(device.empty([total]));
    this.grads = device.keep(device.zeros([total]));
    this.list = specs.map(({ name, shape, init }, i) => {
      const value = device.keep(this.values.view(offsets[i] as number, shape));
      value.write(init);
      return { name, value, grad: device.keep(this.grads.view(offsets[i] as number, shape)) };
    });
    this.byName = new Map(this.list.map((parameter) => [parameter.name, parameter]));
    if (this.byName.size !== specs.length) {
      throw new StepTrainError('E_RANGE', 'two trainable parameters have the same name');
    }
  }

  get size(): number {
    return this.offsets.at(-1) as number;
  }

  get(name: string): Parameter | undefined {
    return this.byName.get(name);
  }

  zeroGrads(): void {
    this.device.enqueue(this.device.signature('fill'), [this.grads], [0]);
  }

  dispose(): void {
    for (const { value, grad } of this.list) {
      value.dispose();
      grad?.dispose();
    }
    this.values.dispose();
    this.grads.dispose();
  }
}
