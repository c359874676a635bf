import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import { maxDifference, random } from '../ops/numbers.js';
import { stored } from '../ops/precision.js';
import { EMULATED, gpus, skipped } from './gpu.js';
import { type Call, type Given, openBoth, results } from './two-devices.js';

interface Settings {
  readonly causal?: boolean;
  readonly window?: number;
  readonly branched?: boolean;
  readonly scale?: number;
  readonly lengths?: readonly number[];
  readonly heads?: number;
  readonly kvHeads?: number;
}

type Name = 'q' | 'k' | 'v' | 'do';
type Values = Readonly<Record<Name, Float32Array>>;
type Read = Record<string, number[]>;

/** Lengths that are not multiples of a tile, and an empty sequence. */
const ragged = [300, 0, 141, 5];
/** The same tokens. On the emulator of Hopper they take the other forward, by their mean length (cuda/attention/attention.cc). */
const shorter = [...ragged, 0, 0];
/** More sequences than those for which tiles are sorted. */
const many = Array.from({ length: 140 }, (_, s) => (s * 7) % 5);
const outputs = ['o', 'lse', 'dq', 'dk', 'dv'] as const;

const offsets = (lengths: readonly number[]) =>
  Int32Array.from([0, ...lengths.map((_, s) => lengths.slice(0, s + 1).reduce((a, b) => a + b))]);

const isHopper = gpus[0] !== EMULATED || process.env.STEPTRAIN_EMULATED_CAPABILITY === '90';

/** Sequences longer than the tiles of the tensor-core kernels, in bf16; `new`: heads that have a successor there. */
describe.skipIf(gpus.length === 0).each(isHopper ? ['verified', 'new'] : ['verified'])(
  `attention over several tiles on cuda:0${skipped}, kernels: %s`,
  overSeveralTiles,
);

function overSeveralTiles(kernels: string) {
  const before = process.env.STEPTRAIN_KERNELS;
  beforeAll(() => {
    process.env.STEPTRAIN_KERNELS = kernels;
  });
  afterAll(() => {
    if (before === undefined) delete process.env.STEPTRAIN_KERNELS;
    else process.env.STEPTRAIN_KERNELS = before;
  });
  const isServed = (size: number) => kernels === 'verified' || size === 128;
  const only = (sizes: readonly number[]) => sizes.filter(isServed);

  let gpu: Device;
  let cpu: Device;
  openBoth((...opened) => {
    [gpu, cpu] = opened;
  });

  const shapeOf = (name: Name, size: number, { lengths = ragged, heads = 2, kvHeads = 1 }: Settings) => [
    lengths.reduce((a, b) => a + b),
    name === 'k' || name === 'v' ? kvHeads : heads,
    size,
  ];
  const valuesOf = (size: number, settings: Settings): Values => {
    const of = (name: Name, seed: number) =>
      stored(
        random(
          shapeOf(name, size, settings).reduce((a, b) => a * b),
          seed,
        ),
        'bf16',
      );
    return { q: of('q', 1), k: of('k', 2), v: of('v', 3), do: of('do', 4) };
  };

  /** Forward and backward in one storage. */
  async function both(
    device: Device,
    size: number,
    settings: Settings,
    values: Values,
    dtype: 'bf16' | 'f32' = 'bf16',
  ): Promise<Read> {
    const { lengths = ragged, causal = true, window = 0, scale = size ** -0.5 } = settings;
    const given = (name: Name): Given => ({
      values: values[name],
      shape: shapeOf(name, size, settings),
      dtype,
    });
    const [tokens, heads] = given('q').shape as [number, number];
    const scalars = { causal, window, scale };
    const where = {
      cu_seqlens: { values: offsets(lengths), shape: [lengths.length + 1] },
      branch: settings.branched
        ? {
            values: Int32Array.from({ length: tokens }, (_, t) => (t % 300 < 90 ? 0 : 1 + (t % 3))),
            shape: [tokens],
          }
        : undefined,
    };
    const forward: Call = {
      op: 'attention',
      tensors: { q: given('q'), k: given('k'), v: given('v'), ...where },
      settings: scalars,
    };
    const first = await results(device, forward);
    const backward: Call = {
      op: 'attention_backward',
      tensors: {
        ...forward.tensors,
        do: given('do'),
        o: { values: Float32Array.from(first.o!), shape: given('q').shape, dtype },
        lse: { values: Float32Array.from(first.lse!), shape: [heads, tokens] },
      },
      settings: scalars,
    };
    return { ...first, ...(await results(device, backward)) };
  }

  /** Twice the error of bf16 on the CPU plus one rounding of the largest value, for p and ds in bf16. */
  async function agrees(size: number, settings: Settings) {
    const values = valuesOf(size, settings);
    const got = await both(gpu, size, settings, values);
    const want = await both(cpu, size, settings, values, 'f32');
    const low = await both(cpu, size, settings, values);
    for (const name of outputs) {
      const largest = want[name]!.reduce((a, x) => Math.max(a, Math.abs(x)), 0);
      const tolerance = 2 * maxDifference(low[name]!, want[name]!) + largest * 2 ** -8;
      expect(maxDifference(got[name]!, want[name]!), name).toBeLessThanOrEqual(tolerance);
    }
  }

  const cases: readonly [number, Settings][] = [
    [32, {}],
    [32, { causal: false, window: 100 }],
    [64, {}],
    [64, { lengths: shorter }],
    [64, { causal: false }],
    [64, { causal: false, lengths: shorter }],
    [64, { window: 150 }],
    [64, { window: 150, lengths: shorter }],
    [64, { causal: false, window: 70 }],
    [64, { branched: true }],
    [64, { branched: true, lengths: shorter }],
    [64, { lengths: [129, 1, 1, 64, 127], heads: 6, kvHeads: 2 }],
    [64, { lengths: [70, 1], heads: 16, kvHeads: 8 }],
    [64, { lengths: many }],
    [96, {}],
    [96, { causal: false, branched: true }],
    [128, {}],
    [128, { lengths: shorter }],
    [128, { causal: false }],
    [128, { window: 70, branched: true }],
    [128, { window: 70, branched: true, lengths: shorter }],
    [128, { lengths: [650], heads: 1 }],
    [128, { lengths: [1, 257, 1], heads: 3, kvHeads: 3 }],
    [128, { lengths: [128, 64, 130], heads: 4, kvHeads: 2, causal: false }],
    [256, { lengths: [70, 1, 33] }],
    [256, { lengths: [70, 1, 33], causal: false, window: 20 }],
    [64, { lengths: [70, 130], scale: -0.1 }],
    [64, { lengths: [70, 130], scale: 0 }],
  ];
  it.each(cases.filter(([size]) => isServed(size)))('heads of %i, %j: agrees with the CPU', agrees);

  it.each(only([64, 128, 256]))('heads of %i: NaN and infinity stay in their own sequence', async (size) => {
    const lengths = [141, 67, 5];
    const clean = valuesOf(size, { lengths });
    const values = { ...clean };
    for (const name of ['q', 'k', 'v', 'do'] as const) {
      const [, heads] = shapeOf(name, size, { lengths }) as [number, number];
      (values as Record<Name, Float32Array>)[name] = clean[name]
        .slice()
        .fill(Number.NaN, 141 * heads * size, 208 * heads * size);
    }
    const want = await both(gpu, size, { lengths }, clean);
    const got = await both(gpu, size, { lengths }, values);
    for (const [name, heads] of [
      ['o', 2],
      ['dq', 2],
      ['dk', 1],
      ['dv', 1],
    ] as const) {
      const [from, to] = [141 * heads * size, 208 * heads * size];
      expect(got[name]!.slice(0, from), name).toEqual(want[name]!.slice(0, from));
      expect(got[name]!.slice(to), name).toEqual(want[name]!.slice(to));
      expect(got[name]!.slice(from, to).every(Number.isNaN), name).toBe(true);
    }
  });

  it.each(only([64, 128]))('heads of %i: bits depend on a sequence alone', async (size) => {
    const all = { lengths: [141, 67], heads: 4, kvHeads: 2 };
    const values = valuesOf(size, all);
    const alone = { ...all, lengths: [67] };
    const cut = (name: Name) => values[name].slice(141 * shapeOf(name, size, all)[1]! * size);
    const [got, want] = [
      await both(gpu, size, alone, { q: cut('q'), k: cut('k'), v: cut('v'), do: cut('do') }),
      await both(gpu, size, all, values),
    ];
    for (const [name, heads] of [
      ['o', 4],
      ['dq', 4],
      ['dk', 2],
      ['dv', 2],
    ] as const)
      expect(got[name], name).toEqual(want[name]!.slice(141 * heads * size));
  });

  it.skipIf(kernels === 'new').each<[number, Settings]>([
    [64, { heads: 4, kvHeads: 2 }],
    [128, { branched: true }],
  ])(
    'heads of %i, %j: o and lse have the same bits in a batch with a shorter mean',
    async (size, settings) => {
      const values = valuesOf(size, settings);
      const [got, want] = [
        await both(gpu, size, { ...settings, lengths: shorter }, values),
        await both(gpu, size, settings, values),
      ];
      expect(got.o).toEqual(want.o);
      expect(got.lse).toEqual(want.lse);
    },
  );

  it.skipIf(gpus[0] === EMULATED).each(only([64, 128]))(
    'heads of %i: a long sequence agrees with the CPU',
    (size) => agrees(size, { lengths: [8300], heads: 1, window: 300 }),
  );
}
