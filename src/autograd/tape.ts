/**
 * The autograd tape: differentiable ops record how to carry gradients back, `backward` runs the records in reverse.
 * Nothing records unless a tape is open. No tracing, no broadcasting, no promotion: each op has a hand-written
 * backward kernel and saves exactly the tensors that it needs.
 */
import { StepTrainError } from '../native/errors.js';
import type { Device } from '../runtime/device.js';
import { Tensor } from '../runtime/tensor.js';
import { hasGrad, type Parameter } from './parameters.js';

/** Gradients as they travel back. A tensor's identity is its object, also after its owner disposed it. */
export interface Gradients {
  /**
   * Adds `gradient` to the gradients that have arrived for `tensor`, or drops it where nothing needs it; takes over the
   * caller's reference.
   */
  add(tensor: Tensor, gradient: Tensor): void;
  /** The gradient of `tensor` when it may be written in place (its only owner is the tape), else undefined. */
  inPlace(tensor: Tensor): Tensor | undefined;
  /** Whether anything needs the gradient of `tensor`. */
  wants(tensor: Tensor): boolean;
}

/** Something that the tape holds for a backward. */
export interface Disposable {
  dispose(): void;
}

/** A loss that a forward adds to that of an objective; the training loop sums them. */
export interface AuxiliaryLoss {
  /** f32 [1], kept. */
  readonly loss: Tensor;
  readonly coefficient: number;
  /** Over which it is a mean. */
  readonly tokens: number;
}

/** Inputs of a backward by name: tensors, and anything else to dispose with them. */
export type Saved = Readonly<Record<string, Disposable | undefined>>;

interface Entry {
  readonly saved: Saved;
  /** Carries the gradients of the outputs to the inputs; `weights` are those of the losses in the total. */
  run(weights: ReadonlyMap<Tensor, number>): void;
}

let current: Tape | undefined;

/** The open tape, or undefined: ops then save nothing. */
export function openTape(): Tape | undefined {
  return current;
}

/** The open tape where one of `inputs` has a gradient to get: a tensor that depends on something trainable, or a parameter. */
export function tapeFor(...inputs: readonly (Tensor | Parameter | undefined)[]): Tape | undefined {
  if (!current) return undefined;
  for (const input of inputs) {
    if (input instanceof Tensor ? current.tracks(input) : hasGrad(input)) return current;
  }
  return undefined;
}

export class Tape {
  private entries: Entry[] = [];
  private readonly held: Disposable[] = [];
  /** Losses of the forwards that ran with this tape open. */
  readonly auxiliary: AuxiliaryLoss[] = [];
  private readonly tracked = new Set<Tensor>();
  private readonly arrived = new Map<Tensor, { gradient: Tensor; exclusive: boolean }>();
  /** Number of entries before the first that reads parameters of each layer. */
  private readonly layers = new Map<number, number>();

  constructor(readonly device: Device) {}

  /** Runs `fn` with this tape open; ops of differentiable inputs record onto it. */
  run<T>(fn: () => T): T {
    const outer = current;
    current = this;
    try {
      return fn();
    } finally {
      current = outer;
    }
  }

  /** Asks for the gradient of a tensor that no op made; read it with `takeGradient` after `backward`. */
  watch(tensor: Tensor): void {
    this.tracked.add(tensor);
  }

  tracks(tensor: Tensor | undefined): boolean {
    return tensor !== undefined && this.tracked.has(tensor);
  }

  /** Marks where parameters of a layer may first be read. */
  enterLayer(layer: number): void {
    if (!this.layers.has(layer)) this.layers.set(layer, this.entries.length);
  }

  /** Keeps a thing that recorded backwards read, in addition to saved tensors; it is disposed of once they have run. */
  hold(thing: Disposable): void {
    this.held.push(thing);
  }

  /**
   * Records an op of one output. `backward` gets the output's gradient and `saved`: references of the tape's own to the
   * tensors of `save`, so that the caller may dispose its tensors; they are dropped after the backward has run.
   */
  record<S extends Saved>(
    output: Tensor,
    save: S,
    backward: (gradient: Tensor, saved: S, gradients: Gradients) => void,
  ): void {
    const saved = referencesTo(save);
    this.tracked.add(output);
    this.entries.push({
      saved,
      run: () => {
        const gradient = this.takeGradient(output);
        if (gradient) backward(gradient, saved, this.gradients);
        gradient?.dispose();
      },
    });
  }

  /** Records an op of several outputs: a gradient is undefined if none came in. */
  recordAll<S extends Saved>(
    outputs: readonly Tensor[],
    save: S,
    backward: (incoming: readonly (Tensor | undefined)[], saved: S, gradients: Gradients) => void,
  ): void {
    const saved = referencesTo(save);
    for (const output of outputs) this.tracked.add(output);
    this.entries.push({
      saved,
      run: () => {
        const incoming = outputs.map((output) => this.takeGradient(output));
        if (incoming.some((gradient) => gradient)) backward(incoming, saved, this.gradients);
        for (const gradient of incoming) gradient?.dispose();
      },
    });
  }

  /** Records an objective whose forward has made the gradients too: the backward scales them by the loss's weight in the total. */
  recordLoss(loss: Tensor, all: readonly (readonly [input: Tensor, gradient: Tensor])[]): void {
    const made = all.filter(([input]) => this.tracks(input));
    if (made.length === 0) return;
    const saved = Object.fromEntries(made.map(([, gradient], i) => [i, gradient.alias()]));
    this.tracked.add(loss);
    this.entries.push({
      saved,
      run: (weights) => {
        const factor = weights.get(loss);
        if (!factor) return;
        made.forEach(([input], i) => {
          const x = saved[i] as Tensor;
          this.add(input, factor === 1 ? x.alias() : this.device.ops.scale({ x, factor }).y);
        });
      },
    });
  }

  /**
   * Carries gradients back from `seeds`: a loss with its weight in the total, or any tensor with the gradient of
   * its own shape. Parameter gradients are added into their buffers. The tape is empty afterwards.
   */
  backward(seeds: readonly (readonly [Tensor, number | Tensor])[]): void {
    for (const _ of this.backwardByLayer(seeds));
  }

  /** The same in parts: yields layers from the last to the first, once all is queued that adds to the gradients of that layer or of a later one. */
  *backwardByLayer(seeds: readonly (readonly [Tensor, number | Tensor])[]): Generator<number, void> {
    const weights = new Map<Tensor, number>();
    for (const [tensor, seed] of seeds) {
      if (!this.tracked.has(tensor)) {
        throw new StepTrainError(
          'E_TAPE',
          'backward: a seed was not made on this tape from anything trainable; open the tape around the forward',
        );
      }
      if (typeof seed === 'number') weights.set(tensor, (weights.get(tensor) ?? 0) + seed);
      else this.add(tensor, seed.alias());
    }
    const entries = this.entries;
    this.entries = [];
    const layers = [...this.layers];
    this.layers.clear();
    for (let i = entries.length - 1; i >= 0; i--) {
      const entry = entries[i] as Entry;
      this.device.scope(() => entry.run(weights));
      drop(entry.saved);
      while ((layers.at(-1)?.[1] ?? -1) >= i) yield (layers.pop() as [number, number])[0];
    }
    this.tracked.clear();
    this.letGo();
  }

  /** The gradient that arrived for a watched tensor; the caller owns it. */
  takeGradient(tensor: Tensor): Tensor | undefined {
    const found = this.arrived.get(tensor);
    this.arrived.delete(tensor);
    return found?.gradient;
  }

  /** Drops everything that is saved. */
  dispose(): void {
    for (const { saved } of this.entries) drop(saved);
    this.entries = [];
    for (const { gradient } of this.arrived.values()) gradient.dispose();
    this.arrived.clear();
    this.tracked.clear();
    this.letGo();
  }

  private letGo(): void {
    for (const thing of this.held.splice(0)) thing.dispose();
  }

  private add(tensor: Tensor, gradient: Tensor): void {
    this.device.take(gradient);
    const found = this.arrived.get(tensor);
    if (!found) {
      this.arrived.set(tensor, { gradient, exclusive: !gradient.isShared });
      return;
    }
    const { z: sum } = this.device.ops.add({ x: found.gradient, y: gradient });
    found.gradient.dispose();
    gradient.dispose();
    this.arrived.set(tensor, { gradient: this.device.take(sum), exclusive: true });
  }

  private readonly gradients: Gradients = {
    add: (tensor, gradient) => (this.tracked.has(tensor) ? this.add(tensor, gradient) : gradient.dispose()),
    inPlace: (tensor) => {
      const found = this.arrived.get(tensor);
      return found?.exclusive && !found.gradient.isShared ? found.gradient : undefined;
    },
    wants: (tensor) => this.tracked.has(tensor),
  };
}

function referencesTo<S extends Saved>(save: S): S {
  const saved: Record<string, Disposable | undefined> = { ...save };
  for (const name in saved) {
    const held = saved[name];
    if (held instanceof Tensor) saved[name] = held.alias();
  }
  return saved as S;
}

function drop(saved: Saved): void {
  for (const name in saved) saved[name]?.dispose();
}

/**
 * Runs `fn(inputs, own())` without saving anything inside and again in the backward, trading time for memory. Random
 * masks are keyed by step and position, so the second run is bitwise the first. Parameter gradients flow as usual.
 *
 * @param own makes references to whatever else `fn` reads; they are kept until the backward and disposed there
 */
export function checkpoint<Own extends Disposable>(
  inputs: readonly Tensor[],
  fn: (inputs: readonly Tensor[], own: Own) => readonly Tensor[],
  own: () => Own = () => ({ dispose() {} }) as Own,
): readonly Tensor[] {
  const tape = current;
  const held = own();
  let outputs: readonly Tensor[];
  current = undefined;
  try {
    outputs = fn(inputs, held);
  } finally {
    current = tape;
    if (!tape) held.dispose();
  }
  if (!tape) return outputs;
  const { device } = tape;
  const saved = inputs.map((input) => input.alias());
  const all = {
    dispose() {
      for (const each of [...saved, held]) each.dispose();
    },
  };
  tape.recordAll(outputs, { all }, (outputGradients, _, gradients) => {
    const inner = new Tape(device);
    inputs.forEach((input, i) => {
      if (gradients.wants(input)) inner.watch(saved[i] as Tensor);
    });
    const again = inner.run(() => fn(saved, held));
    const seeds: [Tensor, Tensor][] = [];
    outputGradients.forEach((gradient, i) => {
      if (gradient && inner.tracks(again[i])) seeds.push([again[i] as Tensor, gradient]);
    });
    inner.backward(seeds);
    inputs.forEach((input, i) => {
      const gradient = inner.takeGradient(saved[i] as Tensor);
      if (gradient) gradients.add(input, gradient);
    });
    inner.dispose();
  });
  return outputs;
}
