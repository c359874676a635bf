/** Many weighed token sequences in a few large arrays: 8 bytes a token, and nothing for the garbage collector to follow. */
import { type Dataset, dataset } from '../data/dataset.js';
import { type Target, type TrainingSequence, targetsOf } from './sequence.js';

/** A sequence of n tokens. */
export interface WeighedSequence {
  /** [n] */
  readonly ids: ArrayLike<number>;
  /** [n], the weight of each token as a target; 0 for those that are not learned. That of the first token is not read. */
  readonly weights: ArrayLike<number>;
}

const BLOCK = 1 << 20;

export class PackedSequences {
  /** Position of each sequence: block, begin, length. */
  private readonly places: number[] = [];
  private readonly blocks: { readonly ids: Int32Array; readonly weights: Float32Array; used: number }[] = [];

  get length(): number {
    return this.places.length / 3;
  }

  add({ ids, weights }: WeighedSequence): void {
    let block = this.blocks.at(-1);
    if (block === undefined || block.used + ids.length > block.ids.length) {
      const size = Math.max(BLOCK, ids.length);
      block = { ids: new Int32Array(size), weights: new Float32Array(size), used: 0 };
      this.blocks.push(block);
    }
    block.ids.set(ids, block.used);
    block.weights.set(weights, block.used);
    this.places.push(this.blocks.length - 1, block.used, ids.length);
    block.used += ids.length;
  }

  /** The sequence at `index`, as arrays that must not be written. */
  get(index: number): { readonly ids: Int32Array; readonly weights: Float32Array } {
    const [at, begin, length] = this.places.slice(3 * index, 3 * index + 3) as [number, number, number];
    const { ids, weights } = this.blocks[at] as (typeof this.blocks)[number];
    return { ids: ids.subarray(begin, begin + length), weights: weights.subarray(begin, begin + length) };
  }

  /** The sequences as input of a training loop, made when they are read. `chosen` (default all) may repeat an index; it is its `rowId`. */
  dataset(
    chosen: readonly number[] = Array.from({ length: this.length }, (_, i) => i),
  ): Dataset<TrainingSequence> {
    return dataset(
      chosen.length,
      (i) => new LazySequence(this.get(chosen[i] as number), chosen[i] as number),
    );
  }
}

/**
 * Language modelling with a weight for each token, which is predicted from the tokens before it. Batches are formed from lengths
 * alone: nothing else is made before it is asked for.
 */
export class LazySequence implements TrainingSequence {
  readonly branch = undefined;
  private made: readonly Target[] | undefined;

  constructor(
    private readonly sequence: WeighedSequence,
    readonly rowId: number,
  ) {}

  get ids(): readonly number[] {
    return Array.from(this.sequence.ids);
  }

  get positions(): readonly number[] {
    return Array.from(this.sequence.ids, (_, i) => i);
  }

  get targets(): readonly Target[] {
    this.made ??= targetsOf(this.sequence);
    return this.made;
  }
}
