/** Writer of safetensors files with the layout, byte for byte, of the Python library: wide element types first, then by name. */
import { writeFileAtomically } from '../files/atomic-file.js';
import { type Dtype, dtypeRank, tensorBytes } from './dtype.js';
import { show, WeightsError } from './error.js';
import { tensorNameProblem } from './safetensors.js';

export type TensorData = Uint8Array | Promise<Uint8Array>;

/** One tensor to be written. `data` is called once, when its turn comes, so that no two tensors need to be in memory. */
export interface TensorSource {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  /** The little-endian bytes. */
  data(): TensorData;
}

interface Placed {
  readonly source: TensorSource;
  readonly bytes: number;
}

/**
 * Writes a file atomically: see {@link writeFileAtomically}. The order of `tensors` does not matter, and equal input gives equal bytes.
 *
 * @throws WeightsError for a bad or repeated name, a size that does not fit the shape, or a failed write
 */
export async function writeSafetensors(
  path: string,
  tensors: Iterable<TensorSource>,
  metadata: Readonly<Record<string, string>> = {},
): Promise<void> {
  const placed = layOut(path, tensors);
  const header = encodeHeader(placed, metadata);
  await writeFileAtomically(path, fileChunks(path, header, placed));
}

function layOut(path: string, tensors: Iterable<TensorSource>): readonly Placed[] {
  const names = new Set<string>();
  const placed = [...tensors].map((source) => {
    const { name, dtype, shape } = source;
    const problem = name === '__metadata__' ? 'this name is reserved' : tensorNameProblem(name);
    if (problem !== undefined)
      throw new WeightsError(`cannot write ${path}: tensor ${show(name)}: ${problem}`);
    if (names.has(name)) throw new WeightsError(`cannot write ${path}: tensor ${show(name)} is given twice`);
    names.add(name);
    const bytes = shape.every((extent) => Number.isSafeInteger(extent) && extent >= 0)
      ? tensorBytes(dtype, shape)
      : undefined;
    if (bytes === undefined) {
      throw new WeightsError(
        `cannot write ${path}: tensor ${show(name)}: the shape ${show(shape)} is not valid`,
      );
    }
    return { source, bytes };
  });
  return placed.sort(
    (a, b) =>
      dtypeRank(b.source.dtype) - dtypeRank(a.source.dtype) ||
      Buffer.compare(Buffer.from(a.source.name), Buffer.from(b.source.name)),
  );
}

function encodeHeader(placed: readonly Placed[], metadata: Readonly<Record<string, string>>): Uint8Array {
  const parts: string[] = [];
  const keys = Object.keys(metadata).sort();
  if (keys.length > 0) {
    parts.push(
      `"__metadata__":{${keys.map((key) => `${JSON.stringify(key)}:${JSON.stringify(metadata[key])}`).join(',')}}`,
    );
  }
  let position = 0;
  for (const { source, bytes } of placed) {
    const entry = { dtype: source.dtype, shape: source.shape, data_offsets: [position, position + bytes] };
    parts.push(`${JSON.stringify(source.name)}:${JSON.stringify(entry)}`);
    position += bytes;
  }
  const json = Buffer.from(`{${parts.join(',')}}`);
  // Spaces up to a multiple of 8, so that the data are aligned for every element type.
  const header = Buffer.alloc(8 + Math.ceil(json.length / 8) * 8, ' ');
  header.writeBigUInt64LE(BigInt(header.length - 8));
  json.copy(header, 8);
  return header;
}

async function* fileChunks(
  path: string,
  header: Uint8Array,
  placed: readonly Placed[],
): AsyncGenerator<Uint8Array> {
  yield header;
  for (const { source, bytes } of placed) {
    const data = await source.data();
    if (data.length !== bytes)
      throw new WeightsError(
        `cannot write ${path}: tensor '${source.name}': expected ${bytes} bytes for ${source.dtype} × ${show(source.shape)}, found ${data.length}`,
      );
    yield data;
  }
}
