import { afterAll, describe, expect, it } from 'vitest';
import { packQuantized, packWeight, quantizeWeight, unpackWeight } from '../../src/ops/gemm.js';
import type { Device } from '../../src/runtime/device.js';
import type { Tensor } from '../../src/runtime/tensor.js';
import { quantizedBytes } from '../../src/weights/quantized/format.js';
import { isas, openTest } from './devices.js';
import { random } from './numbers.js';
import { blockWeights, goldenWeights, type KnownWeight } from './quantized-weights.js';

const golden = goldenWeights();
const known = [...golden.weights, ...blockWeights()];

/** Whether scales multiply sums there and not each weight (cpu/gemm/scaled.h). */
const scales = (isa: string, { format }: KnownWeight, dtype: string) =>
  isa === 'avx512bf16' && dtype === 'bf16' && format !== 'q8_0' && format !== 'q6_k';

describe.each(isas)('quantised weights on %s', (isa) => {
  const scalesSums = (weight: KnownWeight, dtype: string) => scales(isa, weight, dtype);
  const device = openTest(isa);
  afterAll(() => device.dispose());

  const packed = ({ bytes, format, shape }: KnownWeight): Tensor =>
    packQuantized(device.tensor(bytes), format, shape);
  /** The same values in a layout of floats. */
  const plain = ({ values, shape }: KnownWeight, dtype: 'f32' | 'bf16'): Tensor =>
    packWeight(device.tensor(values, shape), dtype);

  describe.each(known)('$name', (weight) => {
    const [N, K] = weight.shape;

    it('is dequantised as by its library, bit for bit', async () => {
      const found = await read(device.scope(() => unpackWeight(packed(weight), 'f32')));
      expect(firstDifference(found, weight.values)).toBeUndefined();
    });

    it.each(['f32', 'bf16'] as const)(
      'is multiplied in %s like the weight that it stands for',
      async (dtype) => {
        // By register, by part of a panel, by panel.
        for (const T of [1, 2, 3, 4, 6, 33, 150]) {
          const results = device.scope(() => {
            const x = device.tensor(random(T * K, T), [T, K], dtype);
            const dy = device.tensor(random(T * N, T + 1), [T, N], dtype);
            const lora = {
              lora_a: device.tensor(random(8 * K, 3), [8, K]),
              lora_b: device.tensor(random(N * 8, 4), [N, 8]),
            };
            return [packed(weight), plain(weight, dtype)].map((w) => [
              device.ops.linear({ x, w }).y,
              device.ops.linear({ x, w, ...lora, scale: 0.5 }).y,
              ...Object.values(device.ops.linear_qkv({ x, w_q: w, w_k: w, w_v: w })),
              device.ops.linear_swiglu({ x, w_gate: w, w_up: w }).y,
              device.ops.linear_dx({ dy, w }).dx,
              device.ops.linear_dx({ dy, w, ...lora, scale: 0.5 }).dx,
            ]);
          });
          const [found, wanted] = await Promise.all(results.map((of) => Promise.all(of.map(read))));
          for (const [i, values] of wanted?.entries() ?? []) {
            // Compared with an exact product below.
            if (scalesSums(weight, dtype) && i < 6) continue;
            expect(
              firstDifference(found?.[i] as Float32Array, values),
              `result ${i} of ${T} rows`,
            ).toBeUndefined();
          }
        }
      },
    );

    it.runIf(scalesSums(weight, 'bf16'))('is multiplied in bf16 by scales of sums', async () => {
      const rows = 150;
      const x = device.tensor(random(rows * K, 5), [rows, K], 'bf16');
      const lora = {
        lora_a: device.tensor(random(8 * K, 3), [8, K]),
        lora_b: device.tensor(random(N * 8, 4), [N, 8]),
      };
      const w = packed(weight);
      const outputs = (x: Tensor) => {
        const { y: gate } = device.ops.linear({ x, w, ...lora, scale: 0.5 });
        const { q, k, v } = device.ops.linear_qkv({ x, w_q: w, w_k: w, w_v: w });
        const { y: up } = device.ops.linear({ x, w });
        const pair = { gate_a: lora.lora_a, gate_b: lora.lora_b, gate_scale: 0.5 };
        const apart = device.ops.swiglu({ gate, up }).y;
        return [up, q, k, v, gate, apart, device.ops.linear_swiglu({ x, w_gate: w, w_up: w, ...pair }).y];
      };
      const [y, q, k, v, gate, apart, swiglu] = (await Promise.all(outputs(x).map(read))) as Several;
      for (const same of [q, k, v]) expect(firstDifference(same, y)).toBeUndefined();
      expect(firstDifference(swiglu, apart)).toBeUndefined();

      // A row has its bits in any batch.
      for (const T of [1, 2, 3, 4, 5, 7, 8, 14, 15, 33]) {
        const few = await Promise.all(outputs(x.slice(0, T)).map(read));
        for (const [i, all] of [y, q, k, v, gate, apart, swiglu].entries())
          expect(firstDifference(few[i]!, all.subarray(0, T * N)), `result ${i}, ${T} rows`).toBeUndefined();
      }

      // Twice the error of the product with the weight rounded to bf16, both against float64.
      const exact = exactProduct(
        await read(device.ops.cast({ x, dtype: 'f32' }).y),
        weight.values,
        rows,
        N,
        K,
      );
      const rounded = await read(device.ops.linear({ x, w: plain(weight, 'bf16') }).y);
      const errorOf = (values: Float32Array) =>
        Math.sqrt(values.reduce((sum, value, i) => sum + (value - exact[i]!) ** 2, 0) / values.length);
      expect(errorOf(rounded)).toBeGreaterThan(0);
      expect(errorOf(y)).toBeLessThan(2 * errorOf(rounded));
      for (const each of [x, w]) each.dispose();
    });
  });

  it.each(
    known.flatMap((weight) =>
      (['f32', 'bf16'] as const).map((dtype) => [weight.name, dtype, weight] as const),
    ),
  )('%s is an embedding and a head in %s like the weight that it stands for', async (_, dtype, weight) => {
    const [V, H] = weight.shape;
    const R = 21;
    const tokens = (count: number, seed: number) =>
      Int32Array.from(random(count, seed), (value, i) =>
        i === 0 ? V - 1 : Math.floor(((value + 1) / 2) * V),
      );
    const results = device.scope(() => {
      const ids = device.tensor(tokens(R, 1));
      const choices = device.tensor(tokens(2 * R, 2), [R, 2]);
      const x = device.tensor(random(R * H, 3), [R, H], dtype);
      const dlogprobs = device.tensor(random(R, 4));
      const dentropy = device.tensor(random(R, 5));
      const dlogits = device.tensor(random(2 * R, 6), [R, 2]);
      const temperature = 0.7;
      const { ops } = device;
      return [packed(weight), plain(weight, dtype)].map((w) => {
        const all = ops.head_logprobs({ x, w, targets: ids, temperature, expectation: true });
        const { argmax: _, ...floats } = all;
        const { logprobs: __, expectation, ...saved } = floats;
        return [
          ops.embedding({ ids, weight: w, dtype }).y,
          ...[1, 4, 6].map((rows) => ops.head_logits({ x: x.slice(0, rows), w, temperature }).logits),
          ...logitsInParts(w, x, temperature),
          ops.head_select({ x, w, tokens: choices, temperature }).logits,
          ops.head_select_backward({ dlogits, x, w, tokens: choices, temperature }).dx,
          ...Object.values(floats),
          ops.head_expectation_backward({
            ...{ dlogprobs, w, targets: ids, expectation: expectation!, temperature, dtype },
          }).dx,
          ops.head_logprobs_backward({ dlogprobs, dentropy, x, w, targets: ids, ...saved, temperature }).dx,
        ].map((tensor) => device.keep(tensor));
      });
    });
    const [found, wanted] = await Promise.all(results.map((of) => Promise.all(of.map(read))));
    for (const [i, values] of wanted!.entries())
      expect(firstDifference(found![i]!, values), `result ${i}`).toBeUndefined();
  });

  /** Of 16 rows and of the others: a GPU multiplies a quantised weight by so many at a time, and has other bits with more. */
  function logitsInParts(w: Tensor, x: Tensor, temperature: number): Tensor[] {
    const { ops } = device;
    const rows = x.shape[0] as number;
    const parts = [
      [0, 16],
      [16, rows],
    ] as const;
    if (isa.startsWith('cuda') && w.dtype !== 'u8')
      return parts.map(([from, to]) => ops.head_logits({ x: x.slice(from, to), w, temperature }).logits);
    const { logits } = ops.head_logits({ x, w, temperature });
    return parts.map(([from, to]) => logits.slice(from, to));
  }

  it('has the gradient of its product', async () => {
    const weight = golden.weights[0] as KnownWeight;
    const [N, K] = weight.shape;
    const [x, dy, direction] = [random(K, 1), random(N, 2), random(K, 3)];
    const step = 2 ** -6;
    const loss = async (sign: number) => {
      const moved = x.map((value, i) => value + sign * step * (direction[i] as number));
      const y = await read(
        device.scope(() => device.ops.linear({ x: device.tensor(moved, [1, K]), w: packed(weight) }).y),
      );
      return y.reduce((sum, value, i) => sum + value * (dy[i] as number), 0);
    };
    const dx = await read(
      device.scope(() => device.ops.linear_dx({ dy: device.tensor(dy, [1, N]), w: packed(weight) }).dx),
    );
    const along = dx.reduce((sum, value, i) => sum + value * (direction[i] as number), 0);
    // The product is linear: what is left is the rounding of f32.
    expect(Math.abs(((await loss(1)) - (await loss(-1))) / (2 * step) - along)).toBeLessThan(2e-4);
  });

  it.each(['double', 'plain'])('makes the codes and scales of bitsandbytes (%s)', async (name) => {
    const { bytes, format, shape } = golden.weights.find((weight) => weight.name === name) as KnownWeight;
    const made = device.scope(() =>
      quantizeWeight(
        device.tensor(golden.source(name), shape),
        format as 'nf4',
        quantizedBytes(format, shape),
      ),
    );
    const found = new Uint8Array(await made.readBytes());
    made.dispose();
    expect(found.length).toBe(bytes.length);
    // The mean of the scales, which the second level is about, depends on the order of its sum: all else is equal.
    const same = name === 'plain' ? bytes.length : (shape[0] * shape[1]) / 2;
    expect(Buffer.compare(found.subarray(0, same), bytes.subarray(0, same))).toBe(0);
    if (name === 'plain') return;
    const [levels, wanted] = [found, bytes].map((each) => new Float32Array(each.slice(-1028).buffer));
    expect(firstDifference(levels!.subarray(0, 256), wanted!.subarray(0, 256))).toBeUndefined();
    expect(Math.abs(levels![256]! - wanted![256]!)).toBeLessThan(1e-7);
    const codes = [found, bytes].map((each) => each.subarray(same, same + same / 32));
    expect(codes[0]!.filter((code, i) => Math.abs(code - codes[1]![i]!) > 1).length).toBe(0);
  });

  it.each([
    [2 ** 34, 2 ** 35],
    [2 ** 32, 2 ** 37],
  ])('refuses [%d, %d], whose bytes would overflow', async (N, K) => {
    const said = await refused((other) => packQuantized(other.tensor(new Uint8Array(0)), 'q8_0', [N, K]));
    expect(said).toMatch(/larger than any|memory/);
  });

  it('makes int8 that is at most half a step away', async () => {
    const { shape } = golden.weights[0] as KnownWeight;
    const source = golden.source('double');
    const made = device.scope(() => {
      const bytes = quantizeWeight(device.tensor(source, shape), 'int8', quantizedBytes('int8', shape));
      return unpackWeight(packQuantized(bytes, 'int8', shape), 'f32');
    });
    const values = await read(made);
    for (let row = 0; row < shape[0]; row++) {
      const of = (all: Float32Array) => all.subarray(row * shape[1], (row + 1) * shape[1]);
      const most = of(source).reduce((max, value) => Math.max(max, Math.abs(value)), 0);
      of(values).forEach((value, i) => {
        expect(Math.abs(value - of(source)[i]!)).toBeLessThanOrEqual((most / 127) * 0.5001);
      });
    }
  });

  it.each(['int8', 'e4m3'] as const)('gives zeros of rows without features in %s', async (format) => {
    for (const T of [2, 40])
      for (const dtype of ['f32', 'bf16'] as const) {
        const found = device.scope(() => {
          const w = packQuantized(device.tensor(new Uint8Array(0)), format, [8, 0]);
          return device.ops.linear({ x: device.tensor(new Float32Array(0), [T, 0], dtype), w }).y;
        });
        expect([...(await read(found))]).toEqual(Array(8 * T).fill(0));
      }
  });

  it('is refused where it is not read, and of another size', async () => {
    const weight = golden.weights[1] as KnownWeight;
    const w = packed(weight);
    expect(() => device.ops.pack_weight({ w, dtype: 'f32' })).toThrow(
      'pack_weight: w is a quantised weight (nf4), which this op does not read',
    );
    expect(() => w.write(new Uint8Array(weight.shape[0] * weight.shape[1]))).toThrow('cannot be written');
    w.dispose();
    await expect(
      refused((other) => packQuantized(other.tensor(new Uint8Array(100)), 'q8_0', [2, 32])),
    ).resolves.toContain('a weight [2,32] in q8_0 has 68 bytes, got 100');
    await expect(
      refused((other) => packQuantized(other.tensor(new Uint8Array(100)), 'nf4', [2, 96])),
    ).resolves.toContain('the 96 features of a row must be a multiple of 64 for nf4');
  });

  /** What a device says that it was poisoned with. */
  async function refused(body: (device: Device) => Tensor): Promise<string> {
    const other = openTest(isa);
    try {
      body(other);
      await other.synchronize();
      return 'nothing';
    } catch (error) {
      return (error as Error).message;
    } finally {
      other.dispose();
    }
  }
});

type Several = [
  Float32Array,
  Float32Array,
  Float32Array,
  Float32Array,
  Float32Array,
  Float32Array,
  Float32Array,
];

/** x [rows, K] · wᵀ [N, K] */
function exactProduct(x: Float32Array, w: Float32Array, rows: number, N: number, K: number): Float64Array {
  const y = new Float64Array(rows * N);
  for (let t = 0; t < rows; t++)
    for (let n = 0; n < N; n++) {
      let sum = 0;
      for (let k = 0; k < K; k++) sum += x[t * K + k]! * w[n * K + k]!;
      y[t * N + n] = sum;
    }
  return y;
}

async function read(tensor: Tensor): Promise<Float32Array> {
  const values = await tensor.readFloats();
  tensor.dispose();
  return values;
}

/** Of two arrays that should have the same bits. */
function firstDifference(found: Float32Array, wanted: Float32Array): string | undefined {
  if (found.length !== wanted.length) return `${found.length} values for ${wanted.length}`;
  const at = found.findIndex((value, i) => !Object.is(value, wanted[i]));
  return at < 0 ? undefined : `value ${at}: ${found[at]} for ${wanted[at]}`;
}
