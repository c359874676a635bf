import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { isas, openTest } from './devices.js';
import { maxDifference, random } from './numbers.js';
import { between, differentiate, evaluate, mean, readGolden, sum } from './objective-cases.js';

interface GaeCase {
  rewards: number[];
  values: number[];
  gamma: number;
  lam: number;
  advantages: number[];
  returns: number[];
  whitened: number[] | null;
}

const golden = readGolden('objectives') as {
  gae: GaeCase[];
  grpo: { rewards: number[]; advantages: number[] }[];
};
const vectors = readGolden('vectors') as {
  ppo: Record<
    'rewards' | 'values' | 'advantages' | 'returns' | 'whitened_bessel' | 'whitened_population',
    number[]
  > &
    Record<'lam1_adv_equals_return_minus_value', number[]> & { gamma: number; lam: number };
  group: Record<'rewards' | 'grpo' | 'dr_grpo' | 'rloo', number[]>;
  prm_agg: Record<'p' | 'avg' | 'log_prod' | 'prod' | 'geo_mean' | 'sum_logit', number[]>;
};

const ragged = fc.array(fc.array(fc.tuple(between(-2, 2), between(-2, 2)), { maxLength: 9 }), {
  maxLength: 9,
});
const offsets = (lengths: readonly number[]) =>
  Int32Array.from([0, ...lengths.map((_, i) => sum(lengths.slice(0, i + 1)))]);
const standard = { gamma: 1, lam: 0.95 };

describe.each(isas)('advantages on %s', (isa) => {
  const device = openTest(isa);
  const single = openTest(isa, { threads: 1 });
  afterAll(() => {
    device.dispose();
    single.dispose();
  });

  it.each(golden.gae)('gae and whiten give the golden values of $rewards.length tokens', async (c) => {
    const found = await evaluate(
      device,
      'gae',
      { rewards: c.rewards, values: c.values, cu_seqlens: Int32Array.of(0, c.rewards.length) },
      { gamma: c.gamma, lam: c.lam },
    );
    expect(maxDifference(found.advantages!, c.advantages)).toBeLessThan(2e-6);
    expect(maxDifference(found.returns!, c.returns)).toBeLessThan(2e-6);
    const whitened = await evaluate(
      device,
      'whiten',
      { x: c.advantages },
      { bessel: true, shift_mean: true, eps: 1e-8 },
    );
    expect(maxDifference(whitened.y!, c.whitened ?? [0])).toBeLessThan(1e-6);
  });

  it('gae and both whitenings give the worked example', async () => {
    const c = vectors.ppo;
    const inputs = { rewards: c.rewards, values: c.values, cu_seqlens: Int32Array.of(0, 4) };
    const found = await evaluate(device, 'gae', inputs, { gamma: c.gamma, lam: c.lam });
    expect(maxDifference(found.advantages!, c.advantages)).toBeLessThan(1e-7);
    expect(maxDifference(found.returns!, c.returns)).toBeLessThan(1e-7);
    const whole = await evaluate(device, 'gae', inputs, { gamma: 1, lam: 1 });
    expect(maxDifference(whole.advantages!, c.lam1_adv_equals_return_minus_value)).toBeLessThan(1e-7);
    for (const [bessel, expected] of [
      [false, c.whitened_population],
      [true, c.whitened_bessel],
    ] as const) {
      const { y } = await evaluate(device, 'whiten', { x: c.advantages }, { bessel, eps: 1e-8 });
      expect(maxDifference(y!, expected)).toBeLessThan(2e-6);
    }
  });

  it('gae at lam 1 is the discounted return minus the value, bootstrapped where sequences were cut', () =>
    fc.assert(
      fc.asyncProperty(ragged, fc.constantFrom(1, 0.9), fc.boolean(), async (rows, gamma, cut) => {
        const last = rows.map((_, b) => (cut ? Math.fround(b / 3 - 1) : 0));
        const found = await evaluate(
          device,
          'gae',
          {
            rewards: rows.flat().map(([r]) => r),
            values: rows.flat().map(([, v]) => v),
            cu_seqlens: offsets(rows.map((row) => row.length)),
            ...(cut ? { last_values: last } : {}),
          },
          { gamma, lam: 1 },
        );
        const returns = rows.flatMap((row, b) =>
          row.map(
            (_, t) =>
              sum(row.slice(t).map(([r], k) => gamma ** k * r)) + gamma ** (row.length - t) * last[b]!,
          ),
        );
        expect(maxDifference(found.returns!, returns)).toBeLessThan(2e-6);
        const values = rows.flat().map(([, v]) => v);
        expect(
          maxDifference(
            found.advantages!,
            returns.map((x, i) => x - values[i]!),
          ),
        ).toBeLessThan(2e-6);
      }),
      { numRuns: 50 },
    ));

  it('gae gives a sequence the same bits in any batch', () =>
    fc.assert(
      fc.asyncProperty(ragged, async (rows) => {
        const pack = (list: typeof rows) =>
          evaluate(
            device,
            'gae',
            {
              rewards: list.flat().map(([r]) => r),
              values: list.flat().map(([, v]) => v),
              cu_seqlens: offsets(list.map((row) => row.length)),
            },
            standard,
          );
        const alone: number[] = [];
        for (const row of rows) alone.push(...(await pack([row])).advantages!);
        expect((await pack(rows)).advantages).toEqual(alone);
      }),
      { numRuns: 20 },
    ));

  it('gae with values of 0 is the reward to go: the sum of later process rewards', async () => {
    const rewards = [0, 0.5, 0, -1, 0.25];
    const found = await evaluate(
      device,
      'gae',
      { rewards, values: rewards.map(() => 0), cu_seqlens: Int32Array.of(0, 5) },
      { gamma: 1, lam: 1 },
    );
    expect(found.advantages).toEqual([-0.25, -0.25, -0.75, -0.75, 0.25]);
  });

  it('whiten follows float64, keeps the mean on request, and gives 0 for masked rows without reading them', () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(between(-9, 9), fc.constantFrom(0, 1, 0.5)), { maxLength: 30 }),
        fc.boolean(),
        fc.boolean(),
        async (rows, bessel, shift) => {
          const kept = rows.filter(([, m]) => m !== 0).map(([x]) => x);
          const average = kept.length ? mean(kept) : 0;
          const square = sum(kept.map((x) => (x - average) ** 2));
          const variance = kept.length > 1 ? square / (kept.length - (bessel ? 1 : 0)) : 0;
          const expected = rows.map(([x, m]) =>
            m === 0 ? 0 : (x - average) / Math.sqrt(variance + 1e-8) + (shift ? 0 : average),
          );
          const { y } = await evaluate(
            device,
            'whiten',
            { x: rows.map(([x, m]) => (m === 0 ? Number.NaN : x)), mask: rows.map(([, m]) => m) },
            { bessel, shift_mean: shift, eps: 1e-8 },
          );
          // With equal rows the rounding error of the reference's mean is multiplied by 1e4.
          if (variance > 1e-6 || kept.length < 2) expect(maxDifference(y!, expected)).toBeLessThan(2e-6);
          expect(y!.every((v, i) => rows[i]![1] !== 0 || v === 0)).toBe(true);
        },
      ),
      { numRuns: 50 },
    ));

  it('whiten gives mean 0 and deviation 1 over many rows, the same bits with any number of threads', async () => {
    const x = Array.from(random(50_003, 7), (v) => v * 3 + 5);
    const settings = { eps: 1e-8 };
    const [many, one] = await Promise.all(
      [device, single].map((on) => evaluate(on, 'whiten', { x }, settings)),
    );
    expect(maxDifference(many!.y!, one!.y!)).toBe(0);
    expect(Math.abs(mean(many!.y!))).toBeLessThan(1e-6);
    expect(sum(many!.y!.map((v) => v * v)) / (x.length - 1)).toBeCloseTo(1, 5);
  });

  it('group_advantages gives the worked GRPO, Dr. GRPO and RLOO advantages', async () => {
    const { rewards, grpo, dr_grpo, rloo } = vectors.group;
    for (const [kind, expected] of Object.entries({ grpo, mean: dr_grpo, leave_one_out: rloo })) {
      const inputs = { rewards, offsets: Int32Array.of(0, rewards.length) };
      const { advantages } = await evaluate(device, 'group_advantages', inputs, { kind, eps: 1e-4 });
      expect(maxDifference(advantages!, expected)).toBeLessThan(1e-6);
    }
  });

  it('group_advantages gives the golden GRPO advantages of several groups at once', async () => {
    const cases = golden.grpo;
    const { advantages } = await evaluate(
      device,
      'group_advantages',
      { rewards: cases.flatMap((c) => c.rewards), offsets: offsets(cases.map((c) => c.rewards.length)) },
      { kind: 'grpo', eps: 1e-4 },
    );
    expect(
      maxDifference(
        advantages!,
        cases.flatMap((c) => c.advantages),
      ),
    ).toBeLessThan(1e-6);
  });

  it('group_advantages sum to 0, RLOO is G/(G-1) times the mean-only one, and equals get 0', () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(fc.oneof(between(-2, 2), fc.constant(Math.fround(0.1))), { maxLength: 8 }), {
          maxLength: 6,
        }),
        async (groups) => {
          const inputs = { rewards: groups.flat(), offsets: offsets(groups.map((group) => group.length)) };
          const of = async (kind: string) =>
            (await evaluate(device, 'group_advantages', inputs, { kind, eps: kind === 'grpo' ? 0 : 1e-4 }))
              .advantages!;
          const [grpo, plain, rloo] = [await of('grpo'), await of('mean'), await of('leave_one_out')];
          let at = 0;
          for (const group of groups) {
            const begin = at;
            const cut = (all: number[]) => all.slice(begin, begin + group.length);
            at += group.length;
            expect(Math.abs(sum(cut(plain)))).toBeLessThan(2e-6);
            const G = group.length;
            const scaled = cut(plain).map((a) => (G > 1 ? (a * G) / (G - 1) : 0));
            expect(maxDifference(cut(rloo), scaled)).toBeLessThan(1e-6);
            if (new Set(group).size <= 1)
              expect([...cut(grpo), ...cut(rloo)].every((a) => a === 0)).toBe(true);
            else expect(sum(cut(grpo).map((a) => a * a)) / (G - 1)).toBeCloseTo(1, 4);
          }
        },
      ),
      { numRuns: 40 },
    ));

  it('span_sum aggregates step scores: average, product, geometric mean, sum of logits', async () => {
    const { p, avg, log_prod, prod, geo_mean, sum_logit } = vectors.prm_agg;
    const over = async (x: number[], by: 'sum' | 'mean') =>
      (
        await evaluate(
          device,
          'span_sum',
          { x, spans: [Int32Array.of(0, p.length), [1, 2]] },
          { mean: by === 'mean' },
        )
      ).y![0]!;
    expect(await over(p, 'mean')).toBeCloseTo(avg[0]!, 6);
    const product = await over(p.map(Math.log), 'sum');
    expect(product).toBeCloseTo(log_prod[0]!, 6);
    expect(Math.exp(product)).toBeCloseTo(prod[0]!, 6);
    expect(Math.exp(await over(p.map(Math.log), 'mean'))).toBeCloseTo(geo_mean[0]!, 6);
    expect(
      await over(
        p.map((x) => Math.log(x / (1 - x))),
        'sum',
      ),
    ).toBeCloseTo(sum_logit[0]!, 5);
  });

  it('span_sum and span_spread follow float64 and are each other’s transpose, over overlapping spans', () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(between(-2, 2), { minLength: 1, maxLength: 40 }).chain((x) =>
          fc.record({
            x: fc.constant(x),
            spans: fc.array(
              fc
                .tuple(fc.nat(x.length), fc.nat(x.length))
                .map(([a, b]) => [Math.min(a, b), Math.max(a, b)] as const),
              { maxLength: 12 },
            ),
          }),
        ),
        fc.boolean(),
        async ({ x, spans }, mean) => {
          const shaped = [Int32Array.from(spans.flat()), [spans.length, 2]] as const;
          const sums = (values: number[]) =>
            spans.map(([a, b]) => sum(values.slice(a, b)) / (mean ? Math.max(1, b - a) : 1));
          const { y } = await evaluate(device, 'span_sum', { x, spans: shaped }, { mean });
          expect(maxDifference(y!, sums(x))).toBeLessThan(1e-5);
          const dy = spans.map((_, s) => Math.fround(Math.sin(s + 1)));
          const scalars = { T: x.length, mean };
          const { dx } = await evaluate(device, 'span_spread', { dy, spans: shaped }, scalars);
          const along = (values: number[]) => sum(sums(values).map((value, s) => value * dy[s]!));
          expect(maxDifference(dx!, differentiate(along, x))).toBeLessThan(2e-6);
        },
      ),
      { numRuns: 50 },
    ));

  it('span_spread gives 0 outside spans, and the same bits with one thread and with many', async () => {
    const T = 30_000;
    const spans = Int32Array.from({ length: 2_000 }, (_, i) => Math.floor(i / 2) * 29 + (i % 2) * 20);
    const dy = Array.from(random(1_000, 3));
    const run = (on: typeof device) =>
      evaluate(on, 'span_spread', { dy, spans: [spans, [1_000, 2]] }, { T, mean: true });
    const [many, one] = await Promise.all([run(device), run(single)]);
    expect(maxDifference(many.dx!, one.dx!)).toBe(0);
    expect(many.dx!.every((v, t) => (t % 29 < 20 && t < 29_000) === (v !== 0))).toBe(true);
  });

  it('accepts 0 tokens, 0 groups and empty sequences', async () => {
    const none = { rewards: [], values: [] };
    expect(await evaluate(device, 'gae', { ...none, cu_seqlens: Int32Array.of(0) }, standard)).toEqual({
      advantages: [],
      returns: [],
    });
    expect(
      (await evaluate(device, 'gae', { ...none, cu_seqlens: Int32Array.of(0, 0, 0) })).advantages,
    ).toEqual([]);
    expect((await evaluate(device, 'whiten', { x: [] }, { eps: 1e-8 })).y).toEqual([]);
    const groups = { rewards: [], offsets: Int32Array.of(0, 0) };
    expect((await evaluate(device, 'group_advantages', groups)).advantages).toEqual([]);
    const spans = [new Int32Array(0), [0, 2]] as const;
    expect((await evaluate(device, 'span_sum', { x: [1, 2], spans })).y).toEqual([]);
    expect((await evaluate(device, 'span_spread', { dy: [], spans }, { T: 2 })).dx).toEqual([0, 0]);
  });

  const two = { rewards: [1, 2], values: [0, 0] };
  it.each([
    { op: 'gae', inputs: { ...two, cu_seqlens: Int32Array.of(1, 2) }, message: 'gae: cu_seqlens[0] is 1' },
    {
      op: 'gae',
      inputs: { ...two, cu_seqlens: Int32Array.of(0, 2, 1, 2) },
      message: 'gae: cu_seqlens[2] is 1',
    },
    { op: 'gae', inputs: { ...two, cu_seqlens: Int32Array.of(0, 3) }, message: 'gae: cu_seqlens ends at 3' },
    {
      op: 'group_advantages',
      inputs: { rewards: [1, 2], offsets: Int32Array.of(0, 1) },
      message: 'group_advantages: offsets ends at 1, expected 2',
    },
    {
      op: 'group_advantages',
      inputs: { rewards: [1, 2], offsets: Int32Array.of(0, 2) },
      scalars: { kind: 'best' },
      message: 'group_advantages: kind must be grpo, mean or leave_one_out, found "best"',
    },
    {
      op: 'span_sum',
      inputs: { x: [1, 2], spans: [Int32Array.of(0, 1, 1, 3), [2, 2]] as const },
      message: 'span_sum: spans[1] is 1..3, expected an ascending pair in 0..2',
    },
    {
      op: 'span_spread',
      inputs: { dy: [1], spans: [Int32Array.of(2, 1), [1, 2]] as const },
      scalars: { T: 4 },
      message: 'span_spread: spans[0] is 2..1',
    },
  ])('refuses: $message', async ({ op, inputs, scalars, message }) => {
    const poisoned = openTest(isa);
    await expect(evaluate(poisoned, op, inputs, scalars)).rejects.toThrow(message);
    poisoned.dispose();
  });
});
