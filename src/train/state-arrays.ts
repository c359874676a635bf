/**
 * The arrays in the state of a stage: a file next to state.json holds them, so that state.json stays small and
 * readable.
 */
import { existsSync } from 'node:fs';
import { ending } from '../native/ending.js';
import { openSafetensors, type SafetensorsFile } from '../weights/safetensors.js';
import { type TensorSource, writeSafetensors } from '../weights/safetensors-writer.js';

/** Stands in state.json for an array; its value is the array's name in the file. */
const MARK = '$array';

/** Writes every Float64Array within `state`, if there is any. Gives the state to write as JSON. */
export async function writeStateArrays(path: string, state: unknown): Promise<unknown> {
  const arrays: TensorSource[] = [];
  const bare = withoutArrays(state, 'own', arrays);
  if (arrays.length > 0) await writeSafetensors(path, arrays);
  return bare;
}

function withoutArrays(value: unknown, name: string, found: TensorSource[]): unknown {
  if (value instanceof Float64Array) {
    const { buffer, byteOffset, byteLength, length } = value as Float64Array<ArrayBuffer>;
    const data = () => new Uint8Array(buffer, byteOffset, byteLength);
    found.push({ name, dtype: 'F64', shape: [length], data });
    return { [MARK]: name };
  }
  if (Array.isArray(value)) return value.map((item, i) => withoutArrays(item, `${name}.${i}`, found));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, withoutArrays(item, `${name}.${key}`, found)]),
  );
}

/** The state with its arrays back in place. */
export function readStateArrays(path: string, state: unknown): unknown {
  if (!existsSync(path)) return state;
  using file = ending(openSafetensors(path));
  return withArrays(state, file);
}

function withArrays(value: unknown, file: SafetensorsFile): unknown {
  if (Array.isArray(value)) return value.map((item) => withArrays(item, file));
  if (typeof value !== 'object' || value === null) return value;
  const name = (value as Record<string, unknown>)[MARK];
  if (typeof name === 'string') {
    const { buffer, byteOffset, byteLength } = file.read(name);
    return new Float64Array(buffer, byteOffset, byteLength / 8);
  }
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, withArrays(item, file)]));
}
