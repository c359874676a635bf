import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { isas, openTest } from './devices.js';
import { maxDifference } from './numbers.js';
import { between, differentiate, evaluate, rounded, sum } from './objective-cases.js';

const real = between(-8, 8);
const weight = fc.oneof(fc.constant(0), between(0.01, 2));

const logSoftmax = (x: readonly number[]): number[] => {
  const top = Math.max(...x);
  const lse = top + Math.log(sum(x.map((z) => Math.exp(z - top))));
  return x.map((z) => z - lse);
};
const kl = (p: readonly number[], q: readonly number[]) => sum(p.map((x, i) => Math.exp(x) * (x - q[i]!)));

/** D of core/ops.cc in float64, from its definition. */
function reference(student: readonly number[], teacher: readonly number[], beta: number): number {
  const [s, t] = [logSoftmax(student), logSoftmax(teacher)];
  if (beta === 0) return kl(t, s);
  if (beta === 1) return kl(s, t);
  const m = s.map((x, i) => Math.log((1 - beta) * Math.exp(x) + beta * Math.exp(t[i]!)));
  return beta * kl(t, m) + (1 - beta) * kl(s, m);
}

describe.each(isas)('divergences on %s', (isa) => {
  const device = openTest(isa);
  const single = openTest(isa, { threads: 1 });
  afterAll(() => {
    device.dispose();
    single.dispose();
  });

  const rowsOf = (student: number[], teacher: number[], classes: number) =>
    Array.from({ length: student.length / classes }, (_, i) =>
      [student, teacher].map((x) => x.slice(i * classes, (i + 1) * classes)),
    );

  it('divergence follows float64 and finite differences for any beta, classes and weights', () =>
    fc.assert(
      fc.asyncProperty(
        fc.constantFrom(0, 1, 0.5, 0.1, 0.9),
        fc.integer({ min: 1, max: 30 }).chain((classes) => {
          const row = fc.array(real, { minLength: classes, maxLength: classes });
          return fc.array(fc.tuple(row, row, weight), { minLength: 1, maxLength: 9 });
        }),
        async (beta, rows) => {
          const classes = rows[0]![0].length;
          const student = rows.flatMap(([x]) => x);
          const teacher = rows.flatMap(([, x]) => x);
          const weights = rounded(rows.map(([, , w]) => w));
          const shape = [rows.length, classes];
          const loss = (x: number[]) =>
            sum(
              rowsOf(x, teacher, classes).map(
                ([s, t], i) => weights[i]! * reference(s!, t!, Math.fround(beta)),
              ),
            );
          const inputs = { student: [student, shape], teacher: [teacher, shape], weights } as never;
          const found = await evaluate(device, 'divergence', inputs, { beta });
          const scale = 1 + sum(weights) * 16;
          expect(Math.abs(found.loss![0]! - loss(student))).toBeLessThan(2e-6 * scale);
          expect(maxDifference(found.dstudent!, differentiate(loss, student))).toBeLessThan(3e-6 * scale);
          // Number of threads changes no bit.
          expect(await evaluate(single, 'divergence', inputs, { beta })).toEqual(found);
        },
      ),
      { numRuns: 60 },
    ));

  it('divergence logs both KLs, entropy and agreement as means by weight', async () => {
    const student = [1, 2, 3, 0, 0, 0];
    const teacher = [3, 2, 1, 0, 0.5, 1];
    const weights = [0.75, 0.25];
    const shape = [2, 3];
    const { stats } = await evaluate(device, 'divergence', {
      student: [student, shape],
      teacher: [teacher, shape],
      weights,
    });
    const rows = rowsOf(student, teacher, 3);
    const mean = (of: (s: number[], t: number[]) => number) =>
      sum(rows.map(([s, t], i) => weights[i]! * of(s!, t!)));
    expect(stats![0]).toBeCloseTo(
      mean((s, t) => reference(s, t, 1)),
      6,
    );
    expect(stats![1]).toBeCloseTo(
      mean((s, t) => reference(s, t, 0)),
      6,
    );
    expect(stats![2]).toBeCloseTo(
      mean(
        (s) =>
          -kl(
            logSoftmax(s),
            s.map(() => 0),
          ),
      ),
      6,
    );
    // The first of equals is the most likely.
    expect(stats![3]).toBe(0);
    expect(stats![4]).toBe(1);
  });

  it('divergence reads rows of more classes than a block has threads, and the first of equal logits', async () => {
    const classes = 700;
    const row = (seed: number) =>
      Array.from({ length: classes }, (_, c) => Math.fround(Math.sin(seed + c * c)));
    // The largest logit stands at two places. The rows agree where their first places are equal.
    const twice = (seed: number, ...places: number[]) =>
      row(seed).map((x, c) => (places.includes(c) ? 4 : x));
    const students = [twice(1, 300, 555), twice(2, 44, 300)];
    const teachers = [twice(3, 300, 44 + 256), twice(4, 300, 600)];
    const weights = [0.5, 2];
    for (const beta of [0, 0.25, 1]) {
      const inputs = {
        student: [students.flat(), [2, classes]],
        teacher: [teachers.flat(), [2, classes]],
        weights,
      } as never;
      const found = await evaluate(device, 'divergence', inputs, { beta });
      const expected = sum(students.map((s, i) => weights[i]! * reference(s, teachers[i]!, beta)));
      expect(found.loss![0]).toBeCloseTo(expected, 4);
      const few = [0, 44, 299, 300, 555, 699];
      const gradient = differentiate(
        (x) =>
          sum(
            students.map((s, i) => {
              const moved = [...s];
              few.forEach((c, k) => {
                moved[c] = x[i * few.length + k]!;
              });
              return weights[i]! * reference(moved, teachers[i]!, beta);
            }),
          ),
        students.flatMap((s) => few.map((c) => s[c]!)),
      );
      const read = students.flatMap((_, i) => few.map((c) => found.dstudent![i * classes + c]!));
      expect(maxDifference(read, gradient)).toBeLessThan(2e-5);
      expect(found.stats![3]).toBeCloseTo(0.2, 6);
    }
  });

  it('divergence is 0 with gradient 0 between equal rows, far logits stay finite, and NaN is not hidden', async () => {
    const far = [1e4, -1e4, 0, 3];
    const inputs = { student: [far, [1, 4]], teacher: [far, [1, 4]], weights: [1] } as never;
    for (const beta of [0, 0.5, 1]) {
      const found = await evaluate(device, 'divergence', inputs, { beta });
      expect(found.loss![0]).toBeCloseTo(0, 6);
      expect(maxDifference(found.dstudent!, [0, 0, 0, 0])).toBe(0);
    }
    const bad = {
      student: [
        [0, Number.NaN],
        [1, 2],
      ],
      teacher: [
        [0, 0],
        [1, 2],
      ],
      weights: [1],
    } as never;
    expect((await evaluate(device, 'divergence', bad)).loss![0]).toBeNaN();
    const skipped = { ...(bad as object), weights: [0] } as never;
    expect((await evaluate(device, 'divergence', skipped)).loss![0]).toBe(0);
    const other = openTest(isa);
    await expect(evaluate(other, 'divergence', inputs, { beta: 1.5 })).rejects.toThrow(/beta is from 0 to 1/);
    other.dispose();
  });

  it('sampled_divergence is the divergence of a token and all others, and follows finite differences', () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(between(-12, -1e-3), between(-12, -1e-3), weight), { minLength: 1, maxLength: 20 }),
        async (rows) => {
          const [student, teacher, weights] = [0, 1, 2].map((k) => rounded(rows.map((row) => row[k]!))) as [
            number[],
            number[],
            number[],
          ];
          const both = (x: number) => [x, Math.log(-Math.expm1(x))];
          const loss = (x: number[]) => sum(x.map((s, i) => weights[i]! * kl(both(s), both(teacher[i]!))));
          const found = await evaluate(device, 'sampled_divergence', { student, teacher, weights });
          const scale = 1 + sum(weights) * 16;
          expect(Math.abs(found.loss![0]! - loss(student))).toBeLessThan(2e-6 * scale);
          expect(maxDifference(found.dstudent!, differentiate(loss, student, 1e-6))).toBeLessThan(
            1e-5 * scale,
          );
        },
      ),
      { numRuns: 60 },
    ));

  it('sampled_divergence stays finite where nothing is left beside the token', async () => {
    const found = await evaluate(device, 'sampled_divergence', {
      student: [0, -1e-9, -3],
      teacher: [-3, 0, 0],
      weights: [1, 1, 1],
    });
    expect(Number.isFinite(found.loss![0]!)).toBe(true);
    expect(found.dstudent!.every(Number.isFinite)).toBe(true);
    expect(found.stats![1]).toBe(3);
  });
});
