/** The slice of a flat buffer that a process of a job updates, and its exchange with the others. */
import type { Carrier } from '../../cluster/carriers.js';
import type { Cluster, Part } from '../../cluster/cluster.js';
import { exchange } from '../../cluster/exchange.js';
import type { Tensor } from '../../runtime/tensor.js';

/** Elements whose squares `adamw` adds up at a time: slices begin at multiples, so that the norm has the same bits. */
const CHUNK = 32_768;

/** Elements of what processes exchange are multiples of it, so that all parts begin where vectors do. */
export const ALIGNED = 64;

export const aligned = (elements: number) => Math.ceil(elements / ALIGNED) * ALIGNED;

/** All but the limits are absent where this process has all. */
export interface Slice {
  readonly begin: number;
  readonly end: number;
  /** Norm of a gradient from this process's slice, which is given away. */
  norm?(own: Tensor): Promise<number>;
  /** Collects the slices of all processes: on rank 0 all of it, undefined elsewhere. */
  collect?(own: Float32Array): Promise<Float32Array | undefined>;
  /** Every process gives its slice, and gets the others. */
  share?(values: Tensor): Promise<void>;
}

/** Elements of each slice but the last. */
export const sliceLength = (size: number, processes: number) => Math.ceil(size / processes / CHUNK) * CHUNK;

/** The part of a bucket, by rank, that lies in the slice that the process updates. */
export function slicesIn({ begin, end }: Part, size: number, processes: number): Part[] {
  const slice = sliceLength(size, processes);
  const inside = (at: number) => Math.max(0, Math.min(end, at) - begin);
  return Array.from({ length: processes }, (_, rank) => ({
    begin: inside(rank * slice),
    end: inside((rank + 1) * slice),
  }));
}

/** @param cluster absent: all of it */
export function sliceOf(size: number, cluster: Cluster | undefined, carrier: Carrier | undefined): Slice {
  if (!cluster) return { begin: 0, end: size };
  const { rank, size: processes } = cluster;
  const length = sliceLength(size, processes);
  const [begin, end] = [Math.min(size, rank * length), Math.min(size, (rank + 1) * length)];
  return {
    begin,
    end,
    collect: (own) => collected(own, size, length, cluster),
    async norm(own) {
      // In the order of all chunks: those of one rank follow those of the rank before.
      const all = await exchange(cluster, await squaresOf(own));
      let sum = 0;
      for (const squares of all) for (const each of squares) sum += each;
      return Math.sqrt(sum);
    },
    share: (values) =>
      carrier
        ? cluster.waiting.during(shareByCarrier(values, length, cluster, carrier))
        : shareThroughHost(values, length, cluster),
  };
}

/** Elements that travel at a time. */
export const PIECE = 1 << 22;

async function collected(
  own: Float32Array,
  size: number,
  length: number,
  cluster: Cluster,
): Promise<Float32Array | undefined> {
  const whole = cluster.rank === 0 ? new Float32Array(size) : undefined;
  for (let at = 0; at < length; at += PIECE) {
    const { buffer, byteOffset, byteLength } = own.subarray(at, Math.min(length, at + PIECE));
    const all = await cluster.collect(new Uint8Array(buffer, byteOffset, byteLength));
    all?.forEach((bytes, rank) => {
      if (bytes.length > 0) whole?.set(new Float32Array(bytes.slice().buffer), rank * length + at);
    });
  }
  return whole;
}

async function squaresOf(own: Tensor): Promise<Float64Array> {
  const { device, size } = own;
  if (size === 0) {
    own.dispose();
    return new Float64Array();
  }
  const sums = device.scope(() => {
    const found = device.empty([Math.ceil(size / CHUNK), 2], 'i32');
    device.ops.square_sums({ x: own, sums: found });
    return found;
  }, 'norm');
  const halves = await sums.read();
  sums.dispose();
  own.dispose();
  return new Float64Array(Int32Array.from(halves as Int32Array).buffer);
}

/**
 * The elements that travel at a time, by rank the part of its slice. A copy of everything would take as much memory as
 * the parameters.
 */
function* piecesOf(size: number, length: number, processes: number): Generator<readonly Part[]> {
  const each = aligned(PIECE / processes);
  for (let at = 0; at < length; at += each)
    yield Array.from({ length: processes }, (_, rank) => ({
      begin: Math.min(size, rank * length + at),
      end: Math.min(size, rank * length + Math.min(length, at + each)),
    }));
}

async function shareThroughHost(values: Tensor, length: number, cluster: Cluster): Promise<void> {
  for (const parts of piecesOf(values.size, length, cluster.size)) {
    const windows = parts.map(({ begin, end }) => values.view(begin, [end - begin]));
    const own = windows[cluster.rank] as Tensor;
    const { buffer, byteOffset, byteLength } = own.size > 0 ? await own.readFloats() : new Float32Array();
    const all = await cluster.gather(new Uint8Array(buffer, byteOffset, byteLength));
    all.forEach((bytes, rank) => {
      if (rank !== cluster.rank && bytes.length > 0)
        windows[rank]?.write(new Float32Array(bytes.slice().buffer));
    });
    for (const window of windows) window.dispose();
  }
}

async function shareByCarrier(
  values: Tensor,
  length: number,
  { rank, size: processes }: Cluster,
  { communicator }: Carrier,
): Promise<void> {
  const { device } = values;
  const window = ({ begin, end }: Part) => values.view(begin, [end - begin]);
  for (const parts of piecesOf(values.size, length, processes)) {
    device.scope(() => {
      const each = aligned(PIECE / processes);
      const given = device.zeros([each]);
      const own = window(parts[rank] as Part);
      if (own.size > 0) device.ops.copy({ x: own, y: given.view(0, [own.size]) });
      const all = device.empty([processes, each]);
      device.ops.all_gather({ x: given, y: all, communicator });
      parts.map(window).forEach((place, other) => {
        if (other !== rank && place.size > 0)
          device.ops.copy({ x: all.view(other * each, [place.size]), y: place });
      });
    }, 'parameters of all processes');
    await device.synchronize();
  }
}

/** The parameters that lie in a slice, by their index, and how many of their elements do. */
export function cutSegments(
  offsets: readonly number[],
  begin: number,
  end: number,
): { readonly index: number; readonly length: number }[] {
  return offsets.slice(0, -1).flatMap((offset, index) => {
    const length = Math.min(end, offsets[index + 1] as number) - Math.max(begin, offset);
    return length > 0 ? [{ index, length }] : [];
  });
}
