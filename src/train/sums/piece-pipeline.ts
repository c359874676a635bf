/**
 * Sums pieces over the processes of a job by ops of the queue, whose bytes travel while later ops run: on a GPU on a
 * stream of their own, during the backward pass.
 */
import type { Additions } from '../../cluster/shards.js';
import type { Device } from '../../runtime/device.js';
import type { Tensor } from '../../runtime/tensor.js';
import { aligned } from './slices.js';

interface Piece {
  readonly length: number;
  readonly take: (sum: Tensor) => void;
}

/** A piece whose rows are on their way to where they are added. */
interface Sent extends Piece {
  readonly given: readonly Tensor[];
  readonly arrived: Tensor;
}

/** A piece whose sum is on its way to all. */
interface Summed extends Piece {
  readonly part: Tensor;
  readonly whole: Tensor;
}

/**
 * Each piece takes three steps, one whenever another piece comes: every process sends its rows and gets an n-th of those of all; adds
 * them and sends the sum; has the whole sum. So bytes have the time between two pieces to travel in. All processes give the same
 * pieces in the same order.
 */
export class PiecePipeline {
  private sent: Sent | undefined;
  private summed: Summed | undefined;
  private readonly order: Tensor;

  /** @param isBeside false: every piece is summed at once, and later ops wait for it */
  constructor(
    private readonly device: Device,
    private readonly communicator: number,
    private readonly size: number,
    private readonly additions: Additions,
    private readonly isBeside = true,
  ) {
    const { pairs } = additions;
    this.order = device.keep(device.tensor(Int32Array.from(pairs.flat()), [pairs.length, 2]));
  }

  /**
   * Sends a piece, and lets those before it go a step.
   *
   * @param rows this process's sums over runs of shards, `length` elements each, whose values are read now
   * @param take gets the sum, [length], now or in a later call
   */
  give(rows: readonly Tensor[], length: number, take: (sum: Tensor) => void): void {
    this.step(() => this.send(rows, { length, take }));
    if (!this.isBeside) this.flush();
  }

  /** Finishes all pieces under way. All processes call it. */
  flush(): void {
    while (this.sent || this.summed) this.step();
  }

  dispose(): void {
    this.order.dispose();
  }

  private step(next?: () => Sent): void {
    const { sent, summed, device, communicator } = this;
    device.scope(() => {
      const last = summed?.whole ?? sent?.arrived;
      if (last) device.ops.arrived({ y: last, communicator });
      if (summed) taken(summed);
      this.summed = sent && this.add(sent);
      this.sent = next?.();
    }, 'gradients of all processes');
  }

  private send(rows: readonly Tensor[], piece: Piece): Sent {
    const { device, size, communicator, isBeside } = this;
    const count = this.additions.rows;
    const each = aligned(piece.length / size);
    const arrived = device.keep(device.empty([count * size, each]));
    const given = Array.from({ length: count }, (_, i) => {
      const own = device.keep(device.empty([size, each]));
      const row = rows[i];
      if (row) device.ops.copy({ x: row, y: own.view(0, [piece.length]) });
      const y = arrived.view(i * size * each, [size, each]);
      device.ops.all_to_all({ x: own, y, communicator, beside: isBeside });
      return own;
    });
    return { ...piece, given, arrived };
  }

  private add({ given, arrived, ...piece }: Sent): Summed {
    const { device, communicator, order, additions, isBeside } = this;
    const part = device.keep(device.ops.sum_slices({ x: arrived, pairs: order, root: additions.root }).y);
    const [whole, ...others] = given as [Tensor, ...Tensor[]];
    for (const tensor of [arrived, ...others]) tensor.dispose();
    device.ops.all_gather({ x: part, y: whole, communicator, beside: isBeside });
    return { ...piece, part, whole };
  }
}

function taken({ part, whole, length, take }: Summed): void {
  const sum = whole.view(0, [length]);
  take(sum);
  for (const tensor of [sum, part, whole]) tensor.dispose();
}
