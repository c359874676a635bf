/** The gradient of a batch whose shards are one for each process: summed during the backward pass and freed, but for a slice. */
import type { TrainedParameters } from '../../autograd/parameters.js';
import type { ReleasedGradients } from '../../autograd/released-gradients.js';
import type { Carrier } from '../../cluster/carriers.js';
import type { Cluster, Part } from '../../cluster/cluster.js';
import { additions, type ShardSum } from '../../cluster/shards.js';
import type { Tensor } from '../../runtime/tensor.js';
import { cut, type GradientSum, gradientGroups } from './buckets.js';
import { evenBegins, scratchOf } from './overlapped-sum.js';
import { PiecePipeline } from './piece-pipeline.js';
import { slicesIn } from './slices.js';
import type { Turns } from './turns.js';

/** Elements that are summed at a time: ops of the queue hold as many that are sent and that arrive, and of the piece before its sum. */
export const PIECE = 1 << 22;

interface Group extends Part {
  readonly group: number;
  /** The layer after which a backward pass has completed it. */
  readonly layer: number;
}

/** Adds the gradients of a group over the processes, stores the part in this one's slice, and disposes of the group. */
type SumOfGroup = (flat: Tensor) => Promise<void>;

export class ReleasedSum implements GradientSum {
  private next = 0;
  private readonly groups: readonly (Group & { readonly sum: SumOfGroup })[];
  private readonly sums: Promise<void>[] = [];
  private readonly held: Tensor[] = [];
  /** The pipeline, where ops of the queue sum. */
  private pipeline: PiecePipeline | undefined;

  constructor(
    private readonly parameters: TrainedParameters,
    private readonly gradients: ReleasedGradients,
    private readonly cluster: Cluster,
    {
      carrier,
      overlaps,
      turns,
    }: { readonly carrier: Carrier | undefined; readonly overlaps: boolean; readonly turns: Turns },
  ) {
    const { offsets } = parameters;
    const sumOf = !carrier
      ? (group: Group) => this.throughSockets(group)
      : overlaps && carrier.name !== 'nccl'
        ? this.besideTheQueue(carrier, turns)
        : this.byOps(carrier, overlaps);
    this.groups = gradientGroups(parameters)
      .map(({ from, to, layer }, group) => ({
        ...{ group, layer, begin: offsets[from] as number, end: offsets[to] as number },
      }))
      .sort((a, b) => b.layer - a.layer)
      .map((group) => ({ ...group, sum: sumOf(group) }));
  }

  /** Resolves once at most one group is under way, during which the backward pass computes the next. */
  async passed(_shard: number, layer: number, isEmpty = false): Promise<void> {
    const { groups, gradients, sums, parameters, cluster } = this;
    for (let next = groups[this.next]; next && next.layer >= layer; next = groups[++this.next]) {
      const flat = gradients.release(next.group);
      if (isEmpty) parameters.device.ops.fill({ x: flat, value: 0 });
      const sum = next.sum(flat);
      sum.catch(() => {}); // finish() hears of it
      const before = sums.at(-1);
      sums.push(sum);
      // Ops of the queue run in the order in which they are given: that of all processes, whatever each waits for.
      if (!before || this.pipeline) continue;
      // Others are waited for by a process that has nothing left to compute.
      await Promise.race([before, parameters.device.synchronize()]);
      await cluster.waiting.during(before);
    }
  }

  async add(shard: number): Promise<void> {
    await this.passed(shard, -1);
  }

  async finish(): Promise<void> {
    const { cluster, parameters, pipeline } = this;
    pipeline?.flush();
    await cluster.waiting.during(Promise.all([...this.sums, parameters.device.synchronize()]));
    for (const owned of [...this.held, pipeline]) owned?.dispose();
  }

  private besideTheQueue({ communicator }: Carrier, turns: Turns): (group: Group) => SumOfGroup {
    const { cluster, parameters } = this;
    const { device, size } = parameters;
    const { rank, size: processes } = cluster;
    const { counts, pairs, root } = additions(processes, processes);
    const scratch = scratchOf(device, size, processes - 1);
    this.held.push(scratch);
    return (group) => {
      const give = turns.take(group.layer);
      const wanted = slicesIn(group, size, processes);
      return async (flat) => {
        const computed = device.synchronize();
        computed.catch(() => {}); // the turn hears of it
        await give(async () => {
          await computed;
          await device.sumAcross(communicator, {
            ...{ rows: [flat], result: flat, scratch, counts, pairs, root, wanted },
            begins: evenBegins(flat.size, processes),
          });
        });
        const { begin, end } = wanted[rank] as Part;
        if (begin < end) this.keep(flat.view(begin, [end - begin]), group.begin + begin);
        flat.dispose();
      };
    };
  }

  /** Sums through a star of sockets, which takes pieces, some of them at a time. */
  private throughSockets(group: Group): SumOfGroup {
    const { cluster, parameters } = this;
    const pieces = cut(group, PIECE).map((piece) => {
      let give: (own: Promise<readonly ShardSum[]>) => void = () => {};
      const own = new Promise<readonly ShardSum[]>((resolve) => {
        give = resolve;
      });
      const parts = slicesIn(piece, parameters.size, cluster.size);
      // All are asked for before any other exchange: processes call them in the same order, whenever they have their parts.
      const sum = cluster.sum(own, piece.end - piece.begin, parts);
      sum.catch(() => {}); // whoever waits for the group hears of it
      return { ...piece, give, sum, first: piece.begin + (parts[cluster.rank] as Part).begin };
    });
    return async (flat) => {
      for (const { begin, end, give } of pieces) {
        const window = flat.view(begin - group.begin, [end - begin]);
        give(window.readFloats().then((values) => [{ first: cluster.rank, count: 1, values }]));
        window.dispose();
      }
      flat.dispose();
      for (const { sum, first } of pieces) {
        const values = await sum;
        if (values.length > 0) this.keep(parameters.device.tensor(values), first);
      }
    };
  }

  /**
   * Sums by ops, so that the memory of a group serves the next one: on a GPU, or where ops of the queue use the carrier
   * too.
   */
  private byOps({ communicator }: Carrier, isBeside: boolean): (group: Group) => SumOfGroup {
    const { device } = this.parameters;
    const { size } = this.cluster;
    const pipeline = new PiecePipeline(device, communicator, size, additions(size, size), isBeside);
    this.pipeline = pipeline;
    const take = (sum: Tensor, begin: number) => {
      const { slice, begin: first } = this.gradients;
      const from = Math.max(begin, first);
      const to = Math.min(begin + sum.size, first + slice.size);
      if (from < to) this.keep(sum.view(from - begin, [to - from]), from);
    };
    return ({ begin: first, end }) =>
      async (flat) => {
        for (const { begin, end: to } of cut({ begin: 0, end: end - first }, PIECE)) {
          const piece = flat.view(begin, [to - begin]);
          pipeline.give([piece], piece.size, (sum) => take(sum, first + begin));
          piece.dispose();
        }
        flat.dispose();
      };
  }

  /** Takes `values` over, which lie from `begin` on among all. */
  private keep(values: Tensor, begin: number): void {
    const { slice, begin: first } = this.gradients;
    const place = slice.view(begin - first, [values.size]);
    this.parameters.device.ops.copy({ x: values, y: place });
    for (const tensor of [values, place]) tensor.dispose();
  }
}
