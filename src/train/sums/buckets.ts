import type { TrainedParameters } from '../../autograd/parameters.js';
import type { Part } from '../../cluster/cluster.js';
import { layerNumber } from '../../models/sharded-layers.js';

/** Sums one flat buffer of gradients over shards and processes. */
export interface GradientSum {
  /**
   * Says that gradients of `layer` and later ones are complete in the buffer. The backward of earlier layers may go on
   * meanwhile, except that the next layer waits for the returned promise.
   *
   * @param isEmpty whether the shard has no items, so that its gradient is zero whatever the buffer holds
   */
  passed(shard: number, layer: number, isEmpty?: boolean): void | Promise<void>;
  /** Takes the buffer's content as the gradient of a shard. */
  add(shard: number): Promise<void>;
  /** Once all shards of this process are added: puts the sum over those of all processes into the buffer. */
  finish(): Promise<void>;
}

/** A piece of a flat buffer of gradients. */
export interface Bucket extends Part {
  /** Complete once a backward pass is through this layer; −1 where it is at the end alone. */
  readonly layer: number;
}

/** Elements: shorter ones cost more messages than they save time, longer ones more memory. */
const LEAST = 1 << 18;
export const MOST = 1 << 22;

/** Parameters whose gradients a backward pass completes together, in their order in the buffer, and after which layer. */
export function gradientGroups(
  { list, offsets }: Pick<TrainedParameters, 'list' | 'offsets'>,
  least = LEAST,
): readonly { readonly from: number; readonly to: number; readonly layer: number }[] {
  const found: { from: number; to: number; layer: number }[] = [];
  const begin = (at: number) => offsets[at] as number;
  list.forEach(({ name }, i) => {
    const layer = layerNumber(name) ?? -1;
    const last = found.at(-1);
    const isShort = last && begin(last.to) - begin(last.from) < least && last.layer >= 0 && layer >= 0;
    if (last && (last.layer === layer || isShort))
      found[found.length - 1] = { from: last.from, to: i + 1, layer: Math.min(last.layer, layer) };
    else found.push({ from: i, to: i + 1, layer });
  });
  return found;
}

/** The layers after which a backward pass completes a group of one of the buffers, in its order. */
export function completedAt(trains: readonly Pick<TrainedParameters, 'list' | 'offsets'>[]): number[] {
  const layers = trains.flatMap((parameters) => gradientGroups(parameters).map(({ layer }) => layer));
  return [...new Set(layers)].sort((a, b) => b - a);
}

/** All of a buffer, in the order in which a backward pass completes its pieces. The same in all processes of a job. */
export function bucketsOf(
  parameters: Pick<TrainedParameters, 'list' | 'offsets'>,
  most = MOST,
  least = LEAST,
): readonly Bucket[] {
  const { offsets } = parameters;
  return gradientGroups(parameters, least)
    .map(({ from, to, layer }) => ({ begin: offsets[from] as number, end: offsets[to] as number, layer }))
    .sort((a, b) => b.layer - a.layer)
    .flatMap((bucket) => cut(bucket, most).map((piece) => ({ ...piece, layer: bucket.layer })));
}

/** Pieces of at most `most` elements, in order. */
export function cut({ begin, end }: Part, most: number): Part[] {
  const pieces: Part[] = [];
  for (let at = begin; at < end; at += most) pieces.push({ begin: at, end: Math.min(end, at + most) });
  return pieces;
}
