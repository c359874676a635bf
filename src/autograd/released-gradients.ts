/**
 * Gradients that exist from the first backward that adds to them until they are summed over the processes of a job;
 * this process then keeps a slice of them (ZeRO stage 2, arXiv 1910.02054).
 */
import { StepTrainError } from '../native/errors.js';
import type { Device } from '../runtime/device.js';
import type { Tensor } from '../runtime/tensor.js';

/** Parameters `from` … `to − 1`, whose gradients come and go together. */
export interface GradientGroup {
  readonly from: number;
  readonly to: number;
}

interface Held {
  readonly flat: Tensor;
  /** Views of `flat` by parameter and shape. */
  readonly grads: Map<string, Tensor>;
}

export class ReleasedGradients {
  private groups: readonly GradientGroup[] = [];
  private groupOf: number[] = [];
  private readonly held = new Map<number, Held>();
  /** Groups that are summed: nothing may be added to them any more. */
  private readonly summed = new Set<number>();
  private own: Tensor | undefined;
  /** Start of the slice in the flat order. */
  begin = 0;

  /** @param offsets where each parameter begins in the flat order; the last entry is its length */
  constructor(
    private readonly device: Device,
    private readonly offsets: readonly number[],
    private readonly shapes: readonly (readonly number[])[],
  ) {}

  /** Sets the groups and the slice, before anything is computed. @param groups all parameters, in order */
  divide(groups: readonly GradientGroup[], begin: number, end: number): void {
    this.groups = groups;
    this.groupOf = groups.flatMap(({ from, to }, group) => new Array<number>(to - from).fill(group));
    this.begin = begin;
    this.own?.dispose();
    this.own = this.device.keep(this.device.zeros([end - begin]));
  }

  /** The sum of the released gradients, in the slice of this process. */
  get slice(): Tensor {
    if (!this.own) throw new StepTrainError('E_STATE', 'gradients are released by an optimizer alone');
    return this.own;
  }

  /** The gradient in this shape, which may reach over the next parameters of the group. */
  of(parameter: number, shape: readonly number[] = this.shapes[parameter] as readonly number[]): Tensor {
    const group = this.groupOf[parameter];
    if (group === undefined)
      throw new StepTrainError('E_STATE', 'gradients are released by an optimizer alone');
    if (this.summed.has(group))
      throw new StepTrainError('E_STATE', 'a gradient was added to after it had been summed');
    const { from } = this.groups[group] as GradientGroup;
    const { flat, grads } = this.hold(group);
    const key = `${parameter} ${shape}`;
    const there = grads.get(key);
    if (there) return there;
    const begin = (this.offsets[parameter] as number) - (this.offsets[from] as number);
    const made = this.device.keep(flat.view(begin, shape));
    grads.set(key, made);
    return made;
  }

  /** All gradients of a group, zeros where nothing was added, for one who disposes of them. */
  release(group: number): Tensor {
    const { flat, grads } = this.hold(group);
    for (const tensor of grads.values()) tensor.dispose();
    this.held.delete(group);
    this.summed.add(group);
    return flat;
  }

  /** Zeroes all gradients, released ones too. */
  zero(): void {
    this.dispose();
    this.summed.clear();
    this.device.ops.fill({ x: this.slice, value: 0 });
  }

  /** All but the slice. */
  private dispose(): void {
    for (const { flat, grads } of this.held.values())
      for (const tensor of [flat, ...grads.values()]) tensor.dispose();
    this.held.clear();
  }

  close(): void {
    this.dispose();
    this.own?.dispose();
    this.own = undefined;
  }

  private hold(group: number): Held {
    const there = this.held.get(group);
    if (there) return there;
    const { device, offsets } = this;
    const { from, to } = this.groups[group] as GradientGroup;
    const begin = offsets[from] as number;
    const flat = device.keep(device.zeros([(offsets[to] as number) - begin]));
    const made = { flat, grads: new Map<string, Tensor>() };
    this.held.set(group, made);
    return made;
  }
}
