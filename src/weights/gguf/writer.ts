/** Writes GGUF files, version 3. */
import { writeFileAtomically } from '../../files/atomic-file.js';
import { show, WeightsError } from '../error.js';
import { blockType, blockTypeNumber } from './types.js';

/** A value of metadata with the type that llama.cpp expects of its key. */
export type Typed =
  | { readonly u32: number }
  | { readonly f32: number }
  | { readonly flag: boolean }
  | { readonly text: string }
  | { readonly texts: readonly string[] }
  | { readonly i32s: readonly number[] }
  | { readonly f32s: readonly number[] };

export interface GgufSource {
  readonly name: string;
  /** One of {@link blockTypeNames}. */
  readonly type: string;
  /** Rows first. */
  readonly shape: readonly number[];
  /** The stored bytes; called once, when their turn comes. */
  data(): Promise<Uint8Array> | Uint8Array;
}

const ALIGNMENT = 32;

/** @throws WeightsError for a row that is no whole number of blocks; FileError for a failed write */
export async function writeGguf(
  path: string,
  metadata: ReadonlyMap<string, Typed>,
  tensors: readonly GgufSource[],
): Promise<void> {
  let offset = 0;
  const placed = tensors.map((source) => {
    const bytes = storedBytes(path, source);
    const at = offset;
    offset += aligned(bytes);
    return { source, at, bytes };
  });
  const parts = [
    Buffer.from('GGUF'),
    u32(3),
    u64(tensors.length),
    u64(metadata.size),
    ...[...metadata].flatMap(([key, value]) => [text(key), ...typed(value)]),
    ...placed.flatMap(({ source: { name, type, shape }, at }) => [
      text(name),
      u32(shape.length),
      ...[...shape].reverse().map(u64),
      u32(blockTypeNumber(type)),
      u64(at),
    ]),
  ];
  const header = Buffer.concat(parts);
  async function* chunks() {
    yield padded(header);
    for (const { source, bytes } of placed) {
      const data = await source.data();
      if (data.length !== bytes)
        throw new WeightsError(
          `cannot write ${path}: tensor ${show(source.name)}: expected ${bytes} bytes, found ${data.length}`,
        );
      yield padded(data);
    }
  }
  await writeFileAtomically(path, chunks());
}

function storedBytes(path: string, { name, type, shape }: GgufSource): number {
  const { values, bytes } = blockType(blockTypeNumber(type))!;
  if ((shape.at(-1) as number) % values !== 0)
    throw new WeightsError(
      `cannot write ${path}: tensor ${show(name)}: a row of ${shape.at(-1)} values is no whole number of blocks of ${values} (${type}); choose f16 or bf16`,
    );
  return (shape.reduce((product, extent) => product * extent, 1) / values) * bytes;
}

const aligned = (bytes: number) => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;

function padded(bytes: Uint8Array): Uint8Array {
  if (bytes.length % ALIGNMENT === 0) return bytes;
  return Buffer.concat([bytes, Buffer.alloc(aligned(bytes.length) - bytes.length)]);
}

function number(bytes: number, put: (view: DataView) => void): Buffer {
  const buffer = Buffer.alloc(bytes);
  put(new DataView(buffer.buffer, buffer.byteOffset, bytes));
  return buffer;
}
const u32 = (value: number) => number(4, (view) => view.setUint32(0, value, true));
const i32 = (value: number) => number(4, (view) => view.setInt32(0, value, true));
const f32 = (value: number) => number(4, (view) => view.setFloat32(0, value, true));
const u64 = (value: number) => number(8, (view) => view.setBigUint64(0, BigInt(value), true));

function text(value: string): Buffer {
  const bytes = Buffer.from(value, 'utf8');
  return Buffer.concat([u64(bytes.length), bytes]);
}

function typed(value: Typed): Buffer[] {
  if ('u32' in value) return [u32(4), u32(value.u32)];
  if ('f32' in value) return [u32(6), f32(value.f32)];
  if ('flag' in value) return [u32(7), Buffer.of(value.flag ? 1 : 0)];
  if ('text' in value) return [u32(8), text(value.text)];
  const list = (type: number, items: readonly Buffer[]) => [u32(9), u32(type), u64(items.length), ...items];
  if ('texts' in value) return list(8, value.texts.map(text));
  if ('i32s' in value) return list(5, value.i32s.map(i32));
  return list(6, value.f32s.map(f32));
}
