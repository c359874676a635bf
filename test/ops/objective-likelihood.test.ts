import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { isas, openTest } from './devices.js';
import { maxDifference } from './numbers.js';
import {
  between,
  differentiate,
  evaluate,
  logSigmoid,
  readGolden,
  rounded,
  sigmoid,
  sum,
} from './objective-cases.js';

const vectors = readGolden('vectors') as {
  prm_bce: { logits: number[]; labels: number[]; loss: number[]; grad: number[] };
  masked_sft: { logits: number[]; targets: number[]; mask: number[]; nll: number[]; loss: number[] };
};

const real = between(-8, 8);
const weight = fc.oneof(fc.constant(0), between(0.01, 2));

describe.each(isas)('likelihood objectives on %s', (isa) => {
  const device = openTest(isa);
  const single = openTest(isa, { threads: 1 });
  afterAll(() => {
    device.dispose();
    single.dispose();
  });

  it('nll is the masked mean of the golden token losses', async () => {
    const { nll, mask, loss } = vectors.masked_sft;
    const weights = mask.map((kept) => kept / sum(mask));
    const found = await evaluate(device, 'nll', { logprobs: nll.map((x) => -x), weights });
    expect(found.loss![0]).toBeCloseTo(loss[0]!, 6);
    expect(
      maxDifference(
        found.dlogprobs!,
        rounded(weights).map((w) => 0 - w),
      ),
    ).toBe(0);
  });

  it('cross_entropy gives the golden loss, and a gradient of 0 for the masked row', async () => {
    const { logits, targets, mask, loss } = vectors.masked_sft;
    const weights = mask.map((kept) => kept / sum(mask));
    const found = await evaluate(device, 'cross_entropy', {
      logits: [logits, [4, 3]],
      targets: Int32Array.from(targets),
      weights,
    });
    expect(found.loss![0]).toBeCloseTo(loss[0]!, 6);
    expect(found.dlogits!.slice(3, 6)).toEqual([0, 0, 0]);
    expect(found.stats![2]).toBeCloseTo(1, 6);
    expect(found.stats![3]).toBe(3);
  });

  it('bce gives the golden loss and gradient of a step classifier', async () => {
    const { logits, labels, loss, grad } = vectors.prm_bce;
    const found = await evaluate(device, 'bce', { logits, labels, weights: logits.map(() => 1 / 3) });
    expect(found.loss![0]).toBeCloseTo(loss[0]!, 6);
    expect(maxDifference(found.dlogits!, grad)).toBeLessThan(1e-7);
    expect(found.stats![0]).toBeCloseTo(1, 6);
    expect(found.stats![1]).toBeCloseTo(sum(logits.map(sigmoid)) / 3, 6);
  });

  it('bce follows float64 and finite differences for soft labels and weights', () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(real, between(0, 1), weight), {
          minLength: 1,
          maxLength: 20,
        }),
        async (rows) => {
          const [logits, labels, weights] = [0, 1, 2].map((k) => rows.map((row) => row[k]!)) as number[][];
          const loss = (x: number[]) =>
            -sum(
              x.map(
                (z, i) => weights![i]! * (labels![i]! * logSigmoid(z) + (1 - labels![i]!) * logSigmoid(-z)),
              ),
            );
          const found = await evaluate(device, 'bce', {
            logits: logits!,
            labels: labels!,
            weights: weights!,
          });
          expect(Math.abs(found.loss![0]! - loss(logits!))).toBeLessThan(1e-6 * (1 + sum(weights!) * 8));
          expect(maxDifference(found.dlogits!, differentiate(loss, logits!))).toBeLessThan(1e-6);
          expect(found.dlogits!.filter((_, i) => weights![i] === 0).every((g) => g === 0)).toBe(true);
        },
      ),
      { numRuns: 40 },
    ));

  it('cross_entropy follows float64 and finite differences for any number of classes', () =>
    fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 40 }).chain((classes) =>
          fc.array(
            fc.record({
              x: fc.array(real, { minLength: classes, maxLength: classes }),
              target: fc.nat(classes - 1),
              w: weight,
            }),
            { minLength: 1, maxLength: 5 },
          ),
        ),
        async (rows) => {
          const classes = rows[0]!.x.length;
          const logits = rows.flatMap((row) => row.x);
          const loss = (x: number[]) =>
            sum(
              rows.map(({ target, w }, i) => {
                const row = x.slice(i * classes, (i + 1) * classes);
                return w * (Math.log(sum(row.map(Math.exp))) - row[target]!);
              }),
            );
          const found = await evaluate(device, 'cross_entropy', {
            logits: [logits, [rows.length, classes]],
            targets: Int32Array.from(rows, (row) => row.target),
            weights: rows.map((row) => row.w),
          });
          expect(Math.abs(found.loss![0]! - loss(logits))).toBeLessThan(2e-5);
          expect(maxDifference(found.dlogits!, differentiate(loss, logits))).toBeLessThan(1e-6);
        },
      ),
      { numRuns: 40 },
    ));

  it('is finite for large logits, with the right gradient', async () => {
    const two = await evaluate(device, 'bce', { logits: [800, -800], labels: [0, 1], weights: [1, 1] });
    expect(two.loss).toEqual([1600]);
    expect(two.dlogits).toEqual([1, -1]);
    const many = await evaluate(device, 'cross_entropy', {
      logits: [
        [1e30, -1e30],
        [1, 2],
      ],
      targets: Int32Array.of(0),
      weights: [1],
    });
    expect(many.loss).toEqual([0]);
    expect(many.dlogits).toEqual([0, 0]);
  });

  it('does not read rows of weight 0, and passes a non-finite row on to loss and gradient', async () => {
    const masked = await evaluate(device, 'nll', { logprobs: [Number.NaN, -1], weights: [0, 0.5] });
    expect(masked).toMatchObject({ loss: [0.5], dlogprobs: [0, -0.5] });
    const skipped = await evaluate(device, 'cross_entropy', {
      logits: [
        [Number.NaN, 1, 2, 2],
        [2, 2],
      ],
      targets: Int32Array.of(-100, 1),
      weights: [0, 1],
    });
    expect(skipped.loss![0]).toBeCloseTo(Math.log(2), 6);
    const unlabelled = await evaluate(device, 'bce', {
      logits: [Number.NaN, 0],
      labels: [-1, 1],
      weights: [0, 2],
    });
    expect(unlabelled).toMatchObject({ dlogits: [0, -1], stats: [1, 0.5, 2, 1] });
    for (const bad of [Number.NaN, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY]) {
      const token = await evaluate(device, 'nll', { logprobs: [bad, -1], weights: [1, 1] });
      expect(token).toMatchObject({ loss: [Number.NaN], dlogprobs: [Number.NaN, -1] });
      const step = await evaluate(device, 'bce', { logits: [bad, 0], labels: [1, 0], weights: [1, 1] });
      expect(step).toMatchObject({ loss: [Number.NaN], dlogits: [Number.NaN, 0.5] });
    }
  });

  it('sums many rows to the same bits with one thread and with many', async () => {
    const count = 20_011;
    const logprobs = Array.from({ length: count }, (_, i) => Math.fround(-Math.abs(Math.sin(i)) * 9));
    const weights = logprobs.map((_, i) => Math.fround((i % 7) / count));
    const on = await Promise.all([device, single].map((d) => evaluate(d, 'nll', { logprobs, weights })));
    expect(on[0]!.loss).toEqual(on[1]!.loss);
    expect(Math.abs(on[0]!.loss![0]! + sum(logprobs.map((x, i) => x * weights[i]!)))).toBeLessThan(1e-5);
  });

  it('gives 0 for 0 rows', async () => {
    expect(await evaluate(device, 'nll', { logprobs: [], weights: [] })).toEqual({
      loss: [0],
      dlogprobs: [],
    });
    const none = await evaluate(device, 'bce', { logits: [], labels: [], weights: [] });
    expect(none).toEqual({ loss: [0], dlogits: [], stats: [0, 0, 0, 0] });
  });

  it.each([
    {
      op: 'cross_entropy',
      inputs: {
        logits: [
          [1, 2, 3, 4],
          [2, 2],
        ] as const,
        targets: Int32Array.of(1, 2),
        weights: [1, 1],
      },
      message: 'cross_entropy: targets[1] is 2, outside 0..1',
    },
    {
      op: 'bce',
      inputs: { logits: [1, 2], labels: [1, 1.5], weights: [1, 1] },
      message: 'bce: labels[1] is 1.5, expected a probability from 0 to 1',
    },
  ])('refuses: $message', async ({ op, inputs, message }) => {
    const poisoned = openTest(isa);
    await expect(evaluate(poisoned, op, inputs)).rejects.toThrow(message);
    poisoned.dispose();
  });
});
