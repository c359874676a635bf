/** How llama.cpp stores tensors otherwise than checkpoints do: other values, other shapes, another order of heads. */
import { hasDelta } from './names.js';

/** The sizes that an order of heads depends on. */
export interface HeadSizes {
  /** Width of a head of attention. */
  readonly headDim: number;
  /** Heads of the gated delta rule, where a model has it. */
  readonly delta?: {
    readonly keyHeads: number;
    readonly heads: number;
    readonly keySize: number;
    readonly valueSize: number;
  };
}

/** Rows or columns that lie elsewhere in the file, by groups of `size`. */
export interface Order {
  readonly axis: 'rows' | 'columns';
  readonly size: number;
  /** Rows or columns before the first group, which stay. */
  readonly skip: number;
  /** The place in the file of a group of the checkpoint. */
  place(group: number): number;
}

/** The differences of a tensor in the file from the weight in the checkpoint. */
export interface StoredForm {
  /** Added to each value: for norms the 1 that checkpoints leave to the forward. */
  readonly offset: number;
  /** The file holds -exp(x) of each value x. */
  readonly isDecay: boolean;
  /** The axis of the checkpoint, of extent 1, that the file lacks. */
  readonly squeezed: number | undefined;
  readonly order: Order | undefined;
}

/** @param name of the tensor in the file */
export function storedForm(architecture: string, name: string, sizes: HeadSizes): StoredForm {
  const isQwen = hasDelta(architecture);
  const hasOffset = isQwen ? !name.endsWith('.ssm_norm.weight') : architecture === 'gemma3';
  return {
    offset: hasOffset && /_norm\.weight$/.test(name) ? 1 : 0,
    isDecay: isQwen && name.endsWith('.ssm_a'),
    squeezed: isQwen ? squeezedAxis(name) : undefined,
    order: orderOf(architecture, name, sizes),
  };
}

function squeezedAxis(name: string): number | undefined {
  if (name.endsWith('.ssm_conv1d.weight')) return 1;
  return name.endsWith('.ffn_gate_inp_shexp.weight') ? 0 : undefined;
}

function orderOf(architecture: string, name: string, { headDim, delta }: HeadSizes): Order | undefined {
  const module = /^blk\.\d+\.(\w+)/.exec(name)?.[1];
  if (module === undefined) return undefined;
  if (architecture === 'llama') return /^attn_[qk]$/.test(module) ? neighbours(headDim) : undefined;
  if (!hasDelta(architecture) || !delta || delta.heads === delta.keyHeads) return undefined;
  const { keyHeads, heads, keySize, valueSize } = delta;
  const share = heads / keyHeads;
  // Checkpoints keep the value heads of a key head together. The file has the first of each key head, then the second of each.
  const tiled = (axis: Order['axis'], size: number, skip = 0): Order => ({
    axis,
    size,
    skip,
    place: (head) => (head % share) * keyHeads + Math.floor(head / share),
  });
  if (module === 'attn_qkv' || module === 'ssm_conv1d')
    return tiled('rows', valueSize, 2 * keyHeads * keySize);
  if (module === 'attn_gate') return tiled('rows', valueSize);
  if (['ssm_alpha', 'ssm_beta', 'ssm_a', 'ssm_dt'].includes(module)) return tiled('rows', 1);
  return module === 'ssm_out' ? tiled('columns', valueSize) : undefined;
}

/** For `llama` (mistral too) llama.cpp rotates neighbours, where transformers rotates a head's halves. */
function neighbours(headDim: number): Order {
  const half = headDim / 2;
  const place = (row: number) => {
    const within = row % headDim;
    return row - within + 2 * (within % half) + Math.floor(within / half);
  };
  return { axis: 'rows', size: 1, skip: 0, place };
}

/** The bytes of a tensor in the order of the checkpoint, or of the file. A group has a whole number of bytes. */
export function reordered(
  bytes: Uint8Array<ArrayBuffer>,
  shape: readonly number[],
  { axis, size, skip, place }: Order,
  to: 'checkpoint' | 'file',
): Uint8Array<ArrayBuffer> {
  const rowBytes = bytes.length / (shape[0] as number);
  const [run, bytesOfOne] =
    axis === 'rows' ? [bytes.length, rowBytes] : [rowBytes, rowBytes / (shape.at(-1) as number)];
  const group = size * bytesOfOne;
  const out = bytes.slice();
  for (let begin = 0; begin < bytes.length; begin += run) {
    const first = begin + skip * bytesOfOne;
    const groups = (run - skip * bytesOfOne) / group;
    for (let own = 0; own < groups; own++) {
      const [from, at] = to === 'file' ? [own, place(own)] : [place(own), own];
      out.set(bytes.subarray(first + from * group, first + (from + 1) * group), first + at * group);
    }
  }
  return out;
}
