/** The gradient of a batch whose shards are one for each process: summed during the backward pass and freed, but for a slice. */
import type { ReleasedGradients } from '../autograd/released-gradients.js';
import type { Carrier } from '../cluster/carriers.js';
import type { Cluster } from '../cluster/cluster.js';
import { additions } from '../cluster/shards.js';
import type { Device } from '../runtime/device.js';
import type { Tensor } from '../runtime/tensor.js';
import type { GradientSum } from './buckets.js';
import { aligned } from './slices.js';

/** Elements that are summed at a time: as many are sent, arrive and are added beside the gradients. */
export const PIECE = 1 << 22;

/** Ops of the queue, so that the memory of a group serves the next one. */
export class ReleasedSum implements GradientSum {
  private next = 0;
  private readonly order: Tensor;
  private readonly root: number;

  /** @param layers of the groups of gradients in the order in which a backward pass completes them */
  constructor(
    private readonly device: Device,
    private readonly gradients: ReleasedGradients,
    private readonly groups: readonly { readonly group: number; readonly layer: number }[],
    private readonly cluster: Pick<Cluster, 'size' | 'waiting'>,
    private readonly carrier: Carrier,
  ) {
    const { pairs, root } = additions(cluster.size, cluster.size);
    this.root = root;
    this.order = device.keep(device.tensor(Int32Array.from(pairs.flat()), [pairs.length, 2]));
  }

  passed(_shard: number, layer: number): void {
    for (; (this.groups[this.next]?.layer ?? -2) >= layer; this.next++)
      this.gradients.release(
        (this.groups[this.next] as (typeof this.groups)[number]).group,
        (flat, begin) => {
          for (let at = 0; at < flat.size; at += PIECE) {
            const length = Math.min(PIECE, flat.size - at);
            this.device.scope(
              () => this.sum(flat.view(at, [length]), begin + at),
              'gradients of all processes',
            );
          }
        },
      );
  }

  async add(shard: number): Promise<void> {
    this.passed(shard, -1);
  }

  async finish(): Promise<void> {
    this.order.dispose();
    await this.cluster.waiting.during(this.device.synchronize());
  }

  /** Of all processes, into what lies in the slice of this one. */
  private sum(piece: Tensor, begin: number): void {
    const { device, gradients, root, order: pairs } = this;
    const { communicator } = this.carrier;
    const { size } = this.cluster;
    const each = aligned(piece.size / size);
    const given = device.zeros([size, each]);
    device.ops.copy({ x: piece, y: given.view(0, [piece.size]) });
    const x = device.empty([size, each]);
    device.ops.all_to_all({ x: given, y: x, communicator });
    device.ops.all_gather({ x: device.ops.sum_slices({ x, pairs, root }).y, y: given, communicator });
    const { slice, begin: first } = gradients;
    const from = Math.max(begin, first);
    const to = Math.min(begin + piece.size, first + slice.size);
    if (from < to)
      device.ops.copy({ x: given.view(from - begin, [to - from]), y: slice.view(from - first, [to - from]) });
  }
}
