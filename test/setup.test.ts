import { expect, it } from 'vitest';

it('typed arrays are equal by type and numbers, wherever they lie', () => {
  const numbers = Float32Array.of(9, 1, Number.NaN, 0, 9);
  expect(numbers.subarray(1, 4)).toEqual(Float32Array.of(1, Number.NaN, 0));
  expect({ numbers: [numbers] }).toEqual({ numbers: [numbers.slice()] });
  expect(numbers.subarray(1, 4)).not.toEqual(Float32Array.of(1, Number.NaN, -0));
  expect(numbers.subarray(1, 4)).not.toEqual(Float32Array.of(1, Number.NaN));
  expect(Int32Array.of(1)).not.toEqual(Uint32Array.of(1));
  expect(new DataView(new ArrayBuffer(4))).toEqual(new DataView(new ArrayBuffer(4)));
});
