// Products that are made of other ops: one rounding forward and backward, as if a kernel of their own had them.
import { afterAll, describe, expect, it } from 'vitest';
import { Tape } from '../../src/autograd/tape.js';
import { multiply, scale } from '../../src/ops/memory.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { bf16ToF32, f32ToBf16 } from '../../src/weights/convert.js';
import { isas, openTest } from '../ops/devices.js';
import { random } from '../ops/numbers.js';

const ROUNDED = { f32: (x: Float32Array) => x, bf16: (x: Float32Array) => bf16ToF32(f32ToBf16(x)) } as const;

describe.each(isas)('%s', (isa) => {
  const device = openTest(isa, { threads: 2 });
  afterAll(() => device.dispose());

  it.each(['f32', 'bf16'] as const)(
    'multiply and scale round once, forward and backward, in %s',
    async (dtype) => {
      const round = ROUNDED[dtype];
      const product = (a: Float32Array, b: Float32Array) =>
        Array.from(round(Float32Array.from(a, (v, i) => v * (b[i] as number))));
      for (const n of [1, 37, 8193]) {
        const [x, y, dz] = [1, 2, 3].map((seed) => round(random(n, seed).map((v) => 8 * v)));
        const tensor = (values: Float32Array | undefined): Tensor =>
          device.ops.cast({ x: device.tensor(Float32Array.from(values!), [1, n]), dtype }).y;
        const [a, b] = [tensor(x), tensor(y)];
        const tape = new Tape(device);
        for (const input of [a, b]) tape.watch(input);
        const [z, s] = tape.run(() => [multiply(a, b), scale(a, 0.3)] as const);
        expect(Array.from(await z.readFloats())).toEqual(product(x!, y!));
        const factor = new Float32Array(n).fill(0.3);
        expect(Array.from(await s.readFloats())).toEqual(product(x!, factor));
        tape.backward([[z, tensor(dz)]]);
        expect(Array.from(await tape.takeGradient(a)!.readFloats())).toEqual(product(dz!, y!));
        expect(Array.from(await tape.takeGradient(b)!.readFloats())).toEqual(product(dz!, x!));
        tape.dispose();
        const second = new Tape(device);
        second.watch(a);
        const scaled = second.run(() => scale(a, 0.3));
        second.backward([[scaled, tensor(dz)]]);
        expect(Array.from(await second.takeGradient(a)!.readFloats())).toEqual(product(dz!, factor));
        second.dispose();
      }
    },
  );
});
