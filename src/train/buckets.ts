import type { TrainedParameters } from '../autograd/parameters.js';
import { layerNumber } from '../models/sharded-layers.js';

/** What becomes of one flat buffer of gradients. */
export interface GradientSum {
  /** What the buffer holds of `layer` and later ones is that of the shard; the backward of earlier ones may still run. */
  passed(shard: number, layer: number): void;
  /** Takes what the buffer holds as the gradient of a shard. */
  add(shard: number): Promise<void>;
  /** Once all shards of this process are added: puts the sum over those of all processes into the buffer. */
  finish(): Promise<void>;
}

/** A piece of a flat buffer of gradients. */
export interface Bucket {
  readonly begin: number;
  readonly end: number;
  /** Complete once a backward pass is through this layer; −1 where it is at the end alone. */
  readonly layer: number;
}

/** Elements: shorter ones cost more messages than they save time, longer ones more memory. */
const LEAST = 1 << 18;
const MOST = 1 << 22;

/** All of a buffer, in the order in which a backward pass completes its pieces. The same in all processes of a job. */
export function bucketsOf(
  { list, offsets }: Pick<TrainedParameters, 'list' | 'offsets'>,
  [least, most]: readonly [number, number] = [LEAST, MOST],
): readonly Bucket[] {
  const found: Bucket[] = [];
  list.forEach(({ name }, i) => {
    const [begin, end] = offsets.slice(i, i + 2) as [number, number];
    const layer = layerNumber(name) ?? -1;
    const last = found.at(-1);
    const isShort = last && last.end - last.begin < least && last.layer >= 0 && layer >= 0;
    if (last && (last.layer === layer || isShort))
      found[found.length - 1] = { begin: last.begin, end, layer: Math.min(last.layer, layer) };
    else found.push({ begin, end, layer });
  });
  return found.sort((a, b) => b.layer - a.layer).flatMap((bucket) => cut(bucket, most));
}

function cut({ begin, end, layer }: Bucket, most: number): Bucket[] {
  const pieces: Bucket[] = [];
  for (let at = begin; at < end; at += most) pieces.push({ begin: at, end: Math.min(end, at + most), layer });
  return pieces;
}
