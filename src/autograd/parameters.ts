/** Parameters, and the flat buffers in which those of an optimizer live. */
import { invalid, StepTrainError } from '../native/errors.js';
import type { Device } from '../runtime/device.js';
import { processesOf } from '../runtime/processes.js';
import type { Tensor } from '../runtime/tensor.js';
import { ReleasedGradients } from './released-gradients.js';

export interface Parameter {
  readonly name: string;
  /** Frozen: f32 or bf16, row-major or packed. Trainable: an f32 master, a window on the flat buffer. */
  readonly value: Tensor;
  /** f32, same shape: backward adds into it. Only trainable parameters have one; it may be made when it is read, see `hasGrad`. */
  readonly grad?: Tensor;
  /** The flat buffer that the value is a window on, if it is one. */
  readonly buffer?: ParameterBuffer;
}

/** Whether backward adds to a gradient of it; makes none. */
export const hasGrad = (parameter: Parameter | undefined): boolean =>
  parameter !== undefined && 'grad' in parameter;

export interface ParameterSpec {
  readonly name: string;
  readonly shape: readonly number[];
  /** Initial values, row-major. */
  readonly init: Float32Array;
}

/** Parameters in one flat f32 buffer, in the order given. Owns everything it hands out. */
export class ParameterBuffer {
  readonly values: Tensor;
  readonly list: readonly Parameter[];
  /** Start of each parameter in the flat buffer; the last entry is its length. */
  readonly offsets: readonly number[];
  private readonly byName: ReadonlyMap<string, Parameter>;
  private readonly joint: Parameter[] = [];
  private changes = 0;

  constructor(
    readonly device: Device,
    specs: readonly ParameterSpec[],
    private readonly gradOf: (offset: number, shape: readonly number[]) => Tensor | undefined = () =>
      undefined,
    private readonly releasedOf?: (parameter: number, shape: readonly number[]) => Tensor,
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
    this.values = device.keep(device.empty([offsets.at(-1) as number]));
    this.list = specs.map(({ name, shape, init }, i) => {
      const offset = offsets[i] as number;
      const value = device.keep(this.values.view(offset, shape));
      value.write(init);
      return this.parameter(name, i, value);
    });
    this.byName = new Map(this.list.map((parameter) => [parameter.name, parameter]));
    if (this.byName.size !== specs.length) {
      throw invalid('two parameters have the same name');
    }
  }

  get size(): number {
    return this.offsets.at(-1) as number;
  }

  get(name: string): Parameter | undefined {
    return this.byName.get(name);
  }

  /**
   * Parameters of one shape as one [n, …shape], on their values and gradients. Lives as long as the buffer.
   *
   * @throws StepTrainError where they do not lie side by side
   */
  joined(name: string, names: readonly string[]): Parameter {
    const first = this.list.findIndex((parameter) => parameter.name === names[0]);
    const shape = this.list[first]?.value.shape ?? [];
    if (names.some((each, i) => this.list[first + i]?.name !== each))
      throw invalid(`the parameters of ${name} do not lie side by side`);
    const [offset, all] = [this.offsets[first] as number, [names.length, ...shape]];
    const value = this.device.keep(this.values.view(offset, all));
    const made = this.parameter(name, first, value);
    this.joint.push(made);
    return made;
  }

  /** On the gradient, from that of the parameter numbered `first` on, in the shape of the value. */
  private parameter(name: string, first: number, value: Tensor): Parameter {
    const { releasedOf } = this;
    if (releasedOf)
      return {
        ...{ name, value, buffer: this },
        get grad() {
          return releasedOf(first, value.shape);
        },
      };
    const grad = this.gradOf(this.offsets[first] as number, value.shape);
    return { name, value, buffer: this, ...(grad ? { grad } : {}) };
  }

  /** Overwrites all values. */
  write(values: Float32Array): void {
    this.values.write(values);
    this.changed();
  }

  /** Must be called after values are changed in another way, such as by an optimizer. */
  changed(): void {
    this.changes++;
  }

  /** Number of changes of the values: results computed from them are stale once it has grown. */
  get version(): number {
    return this.changes;
  }

  dispose(): void {
    for (const { value } of [...this.list, ...this.joint]) value.dispose();
    this.values.dispose();
  }
}

/** The parameters of one optimizer, which are contiguous in flat f32 buffers. */
export interface TrainedParameters
  extends Pick<ParameterBuffer, 'device' | 'values' | 'list' | 'offsets' | 'size' | 'changed'> {
  /** Gradients of all parameters; with `released`, of the slice that is kept of them. */
  readonly grads: Tensor;
  /** @internal Where gradients are freed during the backward pass. */
  readonly released?: ReleasedGradients | undefined;
  zeroGrads(): void;
}

/** Parameters with their gradients in a second flat buffer, so that the optimizer is one launch. */
export class TrainableParameters extends ParameterBuffer implements TrainedParameters {
  readonly released: ReleasedGradients | undefined;
  private readonly flat: Tensor | undefined;
  private readonly windows: Tensor[];

  constructor(device: Device, specs: readonly ParameterSpec[]) {
    const total = specs.reduce((sum, { init }) => sum + init.length, 0);
    const releases = processesOf(device)?.releases === true;
    const flat = releases ? undefined : device.keep(device.zeros([total]));
    let released: ReleasedGradients | undefined;
    const windows: Tensor[] = [];
    const windowOf = (offset: number, shape: readonly number[]) => {
      const window = flat && device.keep(flat.view(offset, shape));
      if (window) windows.push(window);
      return window;
    };
    try {
      super(
        device,
        specs,
        windowOf,
        releases ? (...which) => (released as ReleasedGradients).of(...which) : undefined,
      );
    } catch (error) {
      flat?.dispose();
      throw error;
    }
    if (releases)
      released = new ReleasedGradients(
        device,
        this.offsets,
        specs.map(({ shape }) => shape),
      );
    this.released = released;
    this.flat = flat;
    this.windows = windows;
  }

  get grads(): Tensor {
    return this.flat ?? (this.released as ReleasedGradients).slice;
  }

  zeroGrads(): void {
    if (this.released) this.released.zero();
    else this.device.ops.fill({ x: this.grads, value: 0 });
  }

  /**
   * The parameters whose name is chosen, for an optimizer of their own; they live as long as all.
   *
   * @throws StepTrainError where they are not contiguous
   */
  part(isChosen: (name: string) => boolean): TrainedParameters {
    const { device, flat: grads } = this;
    if (!grads)
      throw new StepTrainError(
        'E_CONFIG',
        'run.zero 2 is for methods that train a model or an adapter alone, and here a head has an optimizer of its own; set it to 1',
      );
    const list = this.list.filter(({ name }) => isChosen(name));
    const first = this.list.indexOf(list[0] as Parameter);
    if (list.length === 0 || list.some((parameter, i) => this.list[first + i] !== parameter))
      throw invalid('the parameters of a part do not lie side by side');
    const begin = this.offsets[first] as number;
    const offsets = this.offsets.slice(first, first + list.length + 1).map((offset) => offset - begin);
    const size = offsets.at(-1) as number;
    const window = (of: Tensor) => device.keep(of.view(begin, [size]));
    const [values, gradients] = [window(this.values), window(grads)];
    this.windows.push(values, gradients);
    return {
      ...{ device, list, offsets, size, values, grads: gradients },
      changed: () => this.changed(),
      zeroGrads: () => device.ops.fill({ x: gradients, value: 0 }),
    };
  }

  override dispose(): void {
    for (const window of this.windows) window.dispose();
    super.dispose();
    this.flat?.dispose();
    this.released?.close();
  }
}
