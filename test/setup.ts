// Vitest compares typed arrays by iterating over them, 10 µs for each number. Those of the same bytes are equal at once; of any
// others its own comparison decides, and shows where they differ.
import { expect } from 'vitest';

expect.addEqualityTesters([
  (a: unknown, b: unknown): true | undefined =>
    isTypedArray(a) && isTypedArray(b) && a.constructor === b.constructor && bytes(a).equals(bytes(b))
      ? true
      : undefined,
]);

type TypedArray = Exclude<NodeJS.ArrayBufferView, DataView>;

const isTypedArray = (value: unknown): value is TypedArray =>
  ArrayBuffer.isView(value) && !(value instanceof DataView);

const bytes = ({ buffer, byteOffset, byteLength }: TypedArray): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength);
