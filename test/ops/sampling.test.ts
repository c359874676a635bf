import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { philox4x32 } from '../../src/random/philox.js';
import type { Device } from '../../src/runtime/device.js';
import { unlessEmulated } from '../cuda/gpu.js';
import { isas, onGpu, openTest } from './devices.js';
import { maxDifference, random } from './numbers.js';

interface Settings {
  temperature: number;
  top_k: number;
  top_p: number;
  min_p: number;
}

const PLAIN: Settings = { temperature: 1, top_k: 0, top_p: 1, min_p: 0 };

/** One row after the logits warpers of transformers: `logprobs` by token. */
const golden = JSON.parse(readFileSync(new URL('../golden/sampling.json', import.meta.url), 'utf8')) as {
  logits: (number | null)[];
  cases: (Settings & { logprobs: Record<string, number> })[];
};

interface Drawn {
  tokens: number[];
  logprobs: number[];
  sampling: number[];
  tempered: number[];
}

/** Lists that a row may have besides its settings. */
interface Lists {
  readonly bias?: Readonly<Record<number, number>>;
  readonly allowed?: readonly number[];
}

/** Rows of [seed low, seed high, position, 0]. */
const keysOf = (rows: number, seed = 7) =>
  Int32Array.from({ length: 4 * rows }, (_, i) => [seed, 0x9abcdef0, Math.floor(i / 4), 0][i % 4]!);

/** The settings of `rows` rows, and their lists if any, as inputs of the op. */
function parameters(device: Device, rows: readonly Settings[], lists: readonly Lists[] = []) {
  const floats = (name: 'temperature' | 'top_p' | 'min_p') =>
    device.tensor(Float32Array.from(rows, (row) => row[name]));
  const offsets = (counts: readonly number[]) => {
    let at = 0;
    return device.tensor(Int32Array.from([0, ...counts.map((n) => (at += n))]));
  };
  const biases = lists.map(({ bias = {} }) => Object.entries(bias));
  const allowed = lists.map((row) => row.allowed ?? []);
  return {
    temperature: floats('temperature'),
    top_k: device.tensor(Int32Array.from(rows, (row) => row.top_k)),
    top_p: floats('top_p'),
    min_p: floats('min_p'),
    ...(biases.some((row) => row.length > 0) && {
      bias_offsets: offsets(biases.map((row) => row.length)),
      bias_tokens: device.tensor(Int32Array.from(biases.flat(), ([token]) => Number(token))),
      bias: device.tensor(Float32Array.from(biases.flat(), ([, bias]) => bias)),
    }),
    ...(allowed.some((row) => row.length > 0) && {
      allowed_offsets: offsets(allowed.map((row) => row.length)),
      allowed: device.tensor(Int32Array.from(allowed.flat())),
    }),
  };
}

async function drawWithStatus(
  device: Device,
  rows: readonly (readonly number[])[],
  settings: Partial<Settings> | readonly Partial<Settings>[] = {},
  keys = keysOf(rows.length),
  lists: readonly Lists[] = [],
): Promise<Drawn & { status: number[] }> {
  const of = (row: number): Partial<Settings> =>
    Array.isArray(settings) ? settings[row] : (settings as Partial<Settings>);
  const given = {
    logits: device.tensor(Float32Array.from(rows.flat()), [rows.length, rows[0]?.length ?? 0]),
    keys: device.tensor(keys, [rows.length, 4]),
    ...parameters(
      device,
      rows.map((_, row) => ({ ...PLAIN, ...of(row) })),
      lists,
    ),
  };
  const before = device.stats().launches;
  const found = device.ops.sample({ ...given, tempered_logprobs: true });
  const read = async (name: keyof typeof found) => Array.from(await found[name].read());
  const drawn = {
    tokens: await read('tokens'),
    logprobs: await read('logprobs'),
    sampling: await read('sampling_logprobs'),
    tempered: await read('tempered_logprobs'),
    status: await read('status'),
  };
  // A GPU has 4,096 tickets for the rows of a launch.
  const launches = device.info().name === 'cpu' ? 1 : Math.ceil(rows.length / 4096);
  expect(device.stats().launches - before).toBe(launches);
  for (const tensor of [...Object.values(given), ...Object.values(found)]) tensor.dispose();
  return drawn;
}

/** Draws for rows that all have a token to draw. */
async function draw(...call: Parameters<typeof drawWithStatus>): Promise<Drawn> {
  const { status, ...drawn } = await drawWithStatus(...call);
  expect(status.every((code) => code === 0)).toBe(true);
  return drawn;
}

const logSoftmax = (z: readonly number[]) => {
  const max = Math.max(...z);
  const lse = max + Math.log(z.reduce((total, x) => total + Math.exp(x - max), 0));
  return z.map((x) => x - lse);
};

/** temperature, top-k, top-p and min-p written as transformers does: by sorting, on log-probs in float64. */
function warp(
  logits: readonly number[],
  s: Settings,
  atEdge: (distance: number) => void = () => {},
): number[] {
  let z = logits.map((x) => x / s.temperature);
  const drop = (removed: (token: number) => boolean) => {
    z = z.map((x, token) => (removed(token) ? Number.NEGATIVE_INFINITY : x));
  };
  if (s.top_k > 0) {
    const threshold = [...z].sort((a, b) => b - a)[Math.min(s.top_k, z.length) - 1]!;
    drop((token) => z[token]! < threshold);
  }
  if (s.top_p < 1) {
    const p = logSoftmax(z).map(Math.exp);
    const ascending = z.map((_, token) => token).sort((a, b) => z[a]! - z[b]! || b - a);
    let cumulative = 0;
    const removed = new Set<number>();
    for (const token of ascending.slice(0, -1)) {
      cumulative += p[token]!;
      atEdge(Math.abs(cumulative - (1 - s.top_p)));
      if (cumulative <= 1 - s.top_p) removed.add(token);
    }
    drop((token) => removed.has(token));
  }
  const p = logSoftmax(z).map(Math.exp);
  const least = s.min_p * Math.max(...p);
  drop((token) => p[token]! < least);
  return logSoftmax(z);
}

/** The token of a distribution at the row's Philox number, and the distance of that number from a border. */
function invert(logprobs: readonly number[], key: ArrayLike<number>): { token: number; margin: number } {
  const word = (i: number) => key[i]! >>> 0;
  const [a, b] = philox4x32([word(2), word(3), 0, 0], [word(0), word(1)]);
  const u = ((a >>> 5) * 2 ** 26 + (b >>> 6)) / 2 ** 53;
  let cumulative = 0;
  let token = 0;
  let margin = 1;
  for (const [i, logprob] of logprobs.entries()) {
    if (cumulative <= u && logprob > Number.NEGATIVE_INFINITY) token = i;
    cumulative += Math.exp(logprob);
    margin = Math.min(margin, Math.abs(cumulative - u));
  }
  return { token, margin };
}

const settings: fc.Arbitrary<Settings> = fc.record({
  temperature: fc.constantFrom(0.2, 0.7, 1, 1.7),
  top_k: fc.constantFrom(0, 1, 4, 50, 3000),
  top_p: fc.constantFrom(1, 0.99, 0.9, 0.5, 0.05),
  min_p: fc.constantFrom(0, 0, 0.02, 0.3),
});

describe.each(isas)('sampling on %s', (isa) => {
  const device = openTest(isa);
  const single = openTest(isa, { threads: 1 });
  afterAll(() => {
    device.dispose();
    single.dispose();
  });

  it.each(golden.cases)(
    'draws from the tokens that transformers keeps at temperature $temperature, top-k $top_k, top-p $top_p, min-p $min_p',
    async ({ logprobs, ...given }) => {
      const logits = golden.logits.map((x) => Math.fround(x ?? Number.NEGATIVE_INFINITY));
      const rows = unlessEmulated(isa, 6_000, 500);
      const drawn = await draw(
        device,
        Array.from({ length: rows }, () => logits),
        given,
      );
      // Compared by logit, since transformers keeps an unspecified one of equals at the edge.
      const kept = Object.entries(logprobs).map(
        ([token, logprob]) => [logits[Number(token)]!, logprob] as const,
      );
      const expected = new Map(kept);
      const counts = new Map<number, number>();
      for (const token of drawn.tokens) counts.set(logits[token]!, (counts.get(logits[token]!) ?? 0) + 1);
      expect([...counts.keys()].filter((logit) => !expected.has(logit))).toEqual([]);
      const wanted = drawn.tokens.map((token) => expected.get(logits[token]!)!);
      expect(maxDifference(drawn.sampling, wanted)).toBeLessThan(2e-6);
      // Pearson's χ² over the kept logits: five deviations above its mean at most.
      let chi = 0;
      let cells = 0;
      for (const logit of expected.keys()) {
        const share = kept.reduce((total, [x, logprob]) => total + (x === logit ? Math.exp(logprob) : 0), 0);
        if (share * rows < 5) continue;
        chi += ((counts.get(logit) ?? 0) - share * rows) ** 2 / (share * rows);
        cells++;
      }
      expect(chi).toBeLessThan(cells - 1 + 5 * Math.sqrt(2 * cells));
    },
  );

  it('follows the definition on any logits, any vocabulary and any filters', () =>
    fc.assert(
      fc.asyncProperty(
        fc.constantFrom(1, 2, 17, 63, 64, 65, 513, 2_000, 9_001),
        fc.constantFrom(0, 0.1, 3, 20),
        fc.integer({ min: 1, max: 1e6 }),
        settings,
        async (vocabulary, spread, seed, given) => {
          const logits = Array.from({ length: 3 }, (_, row) =>
            Array.from(random(vocabulary, seed + row), (x) => Math.fround(x * spread)),
          );
          const keys = keysOf(3, seed);
          const drawn = await draw(device, logits, given, keys);
          for (const [row, z] of logits.entries()) {
            let edge = 1;
            const filtered = warp(z, given, (distance) => {
              edge = Math.min(edge, distance);
            });
            const { token, margin } = invert(filtered, keys.subarray(4 * row));
            const found = drawn.tokens[row]!;
            // At the edge of top-p a token may round to either side, as may a draw at the border of two tokens.
            if (spread > 0 && margin > 1e-5 && edge > 1e-6) {
              expect(found).toBe(token);
              expect(Math.abs(drawn.sampling[row]! - filtered[found]!)).toBeLessThan(2e-5);
            }
            expect(Math.abs(drawn.logprobs[row]! - logSoftmax(z)[found]!)).toBeLessThan(2e-5);
            const tempered = logSoftmax(z.map((x) => x / given.temperature));
            expect(Math.abs(drawn.tempered[row]! - tempered[found]!)).toBeLessThan(1e-4);
          }
        },
      ),
      {
        numRuns: 60,
        // Of 3,000 nearly equal tokens one ends 2e-9 beside the edge.
        examples: [[9_001, 0.1, 999_995, { temperature: 1, top_k: 3000, top_p: 0.9, min_p: 0 }]],
      },
    ));

  it.each([40, 9_001])(
    'gives the bits of the log-probs of head_logprobs, over %i tokens',
    async (vocabulary) => {
      const [rows, hidden] = [5, 33];
      const x = device.tensor(random(rows * hidden, 3), [rows, hidden]);
      const w = device.tensor(random(vocabulary * hidden, 4), [vocabulary, hidden]);
      const { logits } = device.ops.head_logits({ x, w, temperature: 1 });
      for (const [temperature, top_p] of [
        [1, 1],
        [0.7, 1],
        [1.3, 0.8],
      ] as const) {
        const keys = device.tensor(keysOf(rows), [rows, 4]);
        const settings = parameters(device, new Array(rows).fill({ ...PLAIN, temperature, top_p }));
        const drawn = device.ops.sample({ logits, keys, ...settings, tempered_logprobs: true });
        const head = async (at: number) =>
          Array.from(
            await device.ops.head_logprobs({ x, w, targets: drawn.tokens, temperature: at }).logprobs.read(),
          );
        // On a GPU the two sum in different orders.
        const same = async (name: keyof typeof drawn, want: readonly number[]) =>
          expect(maxDifference(await drawn[name].read(), want)).toBeLessThanOrEqual(onGpu(isa) ? 2e-6 : 0);
        await same('logprobs', await head(1));
        await same('tempered_logprobs', await head(temperature));
        if (top_p === 1) await same('sampling_logprobs', await head(temperature));
      }
    },
  );

  it.each([
    { name: 'no filter', given: { temperature: 0.9 } },
    { name: 'all filters', given: { temperature: 0.9, top_k: 40, top_p: 0.95, min_p: 0.01 } },
  ])('draws the same for a row in any batch and with any number of threads ($name)', async ({ given }) => {
    const rows = Array.from({ length: 9 }, (_, row) => Array.from(random(1_500, row + 1), (x) => x * 4));
    const keys = keysOf(9);
    const together = await draw(device, rows, given, keys);
    expect(await draw(single, rows, given, keys)).toEqual(together);
    for (const row of [0, 4, 8]) {
      const alone = await draw(device, [rows[row]!], given, keys.slice(4 * row, 4 * row + 4));
      expect(alone).toEqual({
        tokens: [together.tokens[row]],
        logprobs: [together.logprobs[row]],
        sampling: [together.sampling[row]],
        tempered: [together.tempered[row]],
      });
    }
  });

  it('draws for more rows than one launch of a GPU holds', async () => {
    const logits = Array.from({ length: 4_100 }, (_, row) =>
      [0, 1, 2].map((token) => (token === row % 3 ? 9 : -9)),
    );
    const { tokens } = await draw(device, logits, { top_k: 1 });
    expect(tokens).toEqual(logits.map((_, row) => row % 3));
  });

  it('depends on all four words of the key', async () => {
    const rows = Array.from({ length: 5 }, () => new Array<number>(5_000).fill(0));
    const words = [0, 1, 2, 3, 4].flatMap((row) =>
      [1, 2, 3, 4].map((word, i) => (i + 1 === row ? -word : word)),
    );
    const { tokens } = await draw(device, rows, {}, Int32Array.from(words));
    expect(new Set(tokens).size).toBe(5);
  });

  it('takes the first of the max likely tokens at temperature 0', async () => {
    const first = new Array<number>(1_000).fill(-1);
    first[700] = first[900] = 2.5;
    const second = Array.from(random(1_000, 4));
    const drawn = await draw(device, [first, second], { temperature: 0 });
    expect(drawn.tokens).toEqual([700, second.indexOf(Math.max(...second))]);
    expect(drawn.sampling).toEqual([0, 0]);
    expect(drawn.logprobs[0]).toBeCloseTo(logSoftmax(first)[700]!, 5);
  });

  it('is greedy in the limit of each setting', async () => {
    const rows = Array.from({ length: 20 }, (_, row) => Array.from(random(300, row + 1)));
    const { tokens } = await draw(device, rows, { temperature: 0 });
    for (const given of [{ top_k: 1 }, { top_p: 1e-6 }, { min_p: 1 }]) {
      const drawn = await draw(device, rows, given);
      expect(drawn.tokens).toEqual(tokens);
      expect(maxDifference(drawn.sampling, new Float32Array(20))).toBe(0);
    }
    expect((await draw(device, rows, { temperature: 1e-6 })).tokens).toEqual(tokens);
  });

  it('never draws a token of logit -inf', async () => {
    const row = Array.from(random(200, 2), (x, token) => (token % 3 === 1 ? x : Number.NEGATIVE_INFINITY));
    const rows = Array.from({ length: 500 }, () => row);
    for (const given of [{}, { top_k: 150 }, { top_p: 0.999 }, { min_p: 1e-9 }]) {
      const drawn = await draw(device, rows, given);
      expect(drawn.tokens.every((token) => token % 3 === 1)).toBe(true);
      expect(drawn.sampling.every(Number.isFinite)).toBe(true);
    }
  });

  it('accepts 0 rows, and a vocabulary of 1', async () => {
    expect((await draw(device, [])).tokens).toEqual([]);
    expect(await draw(device, [[3]], { top_p: 0.5 })).toEqual({
      tokens: [0],
      logprobs: [0],
      sampling: [0],
      tempered: [0],
    });
  });

  it('uses the defaults for absent settings', async () => {
    const rows = Array.from({ length: 4 }, (_, row) => Array.from(random(600, row + 1), (x) => x * 3));
    const logits = device.tensor(Float32Array.from(rows.flat()), [4, 600]);
    const drawn = await draw(device, rows);
    const plain = device.ops.sample({ logits, keys: device.tensor(keysOf(4), [4, 4]) });
    expect(Array.from(await plain.tokens.read())).toEqual(drawn.tokens);
    expect(Array.from(await plain.sampling_logprobs.read())).toEqual(drawn.sampling);
  });

  it('applies to each row its own settings and lists', async () => {
    const rows = Array.from({ length: 7 }, (_, row) => Array.from(random(700, row + 1), (x) => x * 3));
    const settings = [
      {},
      { temperature: 0 },
      { temperature: 0.5, top_k: 9 },
      { top_p: 0.6 },
      { temperature: 1.5, min_p: 0.1 },
      { temperature: 0.8 },
      { temperature: 0.8, top_k: 3 },
    ];
    const lists = [{}, {}, {}, { bias: { 3: 4, 5: -2 } }, {}, { allowed: [1, 650, 2] }, { bias: { 0: 9 } }];
    const keys = keysOf(7);
    const together = await draw(device, rows, settings, keys, lists);
    for (const [row, logits] of rows.entries()) {
      const alone = await draw(device, [logits], [settings[row]!], keys.slice(4 * row, 4 * row + 4), [
        lists[row]!,
      ]);
      for (const name of ['tokens', 'logprobs', 'sampling', 'tempered'] as const)
        expect(alone[name][0], `${name} of row ${row}`).toBe(together[name][row]);
    }
  });

  it('follows the definition under biases and allowed tokens', () =>
    fc.assert(
      fc.asyncProperty(
        fc.constantFrom(3, 65, 1_500),
        fc.integer({ min: 1, max: 1e6 }),
        settings,
        fc.dictionary(fc.constantFrom('0', '1', '2'), fc.constantFrom(-3, 2.5, Number.NEGATIVE_INFINITY)),
        fc.constantFrom<number[][]>([], [1], [0, 2], [2, 1, 0]),
        async (vocabulary, seed, given, bias, allowed) => {
          // At least one allowed token is not banned.
          if (allowed.length > 0 && allowed.every((token) => bias[token] === Number.NEGATIVE_INFINITY))
            return;
          if (vocabulary === 3 && [0, 1, 2].every((token) => bias[token] === Number.NEGATIVE_INFINITY))
            return;
          const logits = Array.from(random(vocabulary, seed), (x) => Math.fround(x * 3));
          const keys = keysOf(1, seed);
          const drawn = await draw(device, [logits], given, keys, [{ bias, allowed }]);
          const left = logits.map((x, token) =>
            allowed.length > 0 && !allowed.includes(token)
              ? Number.NEGATIVE_INFINITY
              : Math.fround(x + (bias[token] ?? 0)),
          );
          const filtered = warp(left, given);
          const { token, margin } = invert(filtered, keys);
          const found = drawn.tokens[0]!;
          if (margin > 1e-5) {
            expect(found).toBe(token);
            expect(Math.abs(drawn.sampling[0]! - filtered[found]!)).toBeLessThan(2e-5);
          }
          // The model's log-probs depend on neither.
          expect(Math.abs(drawn.logprobs[0]! - logSoftmax(logits)[found]!)).toBeLessThan(2e-5);
          const tempered = logSoftmax(logits.map((x) => x / given.temperature));
          expect(Math.abs(drawn.tempered[0]! - tempered[found]!)).toBeLessThan(1e-4);
        },
      ),
      { numRuns: 60 },
    ));

  it('adds all biases of a token, and is greedy over the adjusted logits', async () => {
    const row = [3, 2, 1, 0];
    const logits = device.tensor(Float32Array.from(row), [1, 4]);
    const drawn = device.ops.sample({
      logits,
      keys: device.tensor(keysOf(1), [1, 4]),
      temperature: device.tensor(Float32Array.of(0)),
      bias_offsets: device.tensor(Int32Array.of(0, 3)),
      bias_tokens: device.tensor(Int32Array.of(2, 0, 2)),
      bias: device.tensor(Float32Array.of(1.25, -5, 1.25)),
    });
    expect(Array.from(await drawn.tokens.read())).toEqual([2]);
    expect((await drawn.logprobs.read())[0]).toBeCloseTo(logSoftmax(row)[2]!, 5);
    const { tokens, sampling } = await draw(device, [row], { temperature: 0 }, keysOf(1), [
      { allowed: [3, 1] },
    ]);
    expect([tokens, sampling]).toEqual([[1], [0]]);
  });

  const { NaN: nan, POSITIVE_INFINITY: infinity, NEGATIVE_INFINITY: never } = Number;
  it.each([{}, { temperature: 0 }, { top_k: 2, top_p: 0.9, min_p: 0.01 }])(
    'reports rows without a token to draw, and draws the others ($temperature)',
    async (given) => {
      const rows = [
        [0, 1, 2],
        [0, nan, 2],
        [never, never, never],
        [0, infinity, 2],
        [2, 1, 0],
        [0, 1, 2],
        [0, 1, never],
      ];
      const lists = [{}, {}, {}, {}, {}, { bias: { 0: never, 1: never, 2: never } }, { allowed: [2] }];
      const drawn = await drawWithStatus(device, rows, given, keysOf(7), lists);
      expect(drawn.status).toEqual([0, 1, 1, 1, 0, 1, 1]);
      for (const row of [1, 2, 3, 5, 6])
        expect([drawn.tokens, drawn.logprobs, drawn.sampling, drawn.tempered].map((x) => x[row])).toEqual([
          0, 0, 0, 0,
        ]);
      const alone = await draw(device, [rows[0]!], given, keysOf(1));
      expect(alone.tokens[0]).toBe(drawn.tokens[0]);
      expect(alone.logprobs[0]).toBe(drawn.logprobs[0]);
      await device.synchronize();
    },
  );

  it.each<{ rows?: number[][]; given?: Partial<Settings>; lists?: Lists; message: string }>([
    { rows: [[]], message: 'sample: the vocabulary is empty' },
    { given: { temperature: -1 }, message: 'sample: temperature[0] is -1, expected 0 or more' },
    { given: { temperature: nan }, message: 'sample: temperature[0] is nan' },
    { given: { temperature: infinity }, message: 'sample: temperature[0] is inf' },
    { given: { top_k: -1 }, message: 'sample: top_k[0] is -1, expected 0 (off) or more' },
    { given: { top_p: 0 }, message: 'sample: top_p[0] is 0, expected more than 0' },
    { given: { min_p: 2 }, message: 'sample: min_p[0] is 2, expected 0 (off) to 1' },
    { lists: { bias: { 2: 1 } }, message: 'sample: bias_tokens[0] is 2, outside 0..1' },
    { lists: { bias: { 1: infinity } }, message: 'sample: bias[0] is inf, expected a number or -inf' },
    { lists: { allowed: [0, -1] }, message: 'sample: allowed[1] is -1, outside 0..1' },
  ])('refuses: $message', async ({ rows = [[0, 1]], given, lists = {}, message }) => {
    const poisoned = openTest(isa);
    await expect(draw(poisoned, rows, given, keysOf(1), [lists])).rejects.toThrow(message);
    poisoned.dispose();
  });

  it.each([
    { name: 'bias_offsets', values: [1, 1], message: 'sample: bias_offsets[0] is 1, expected 0' },
    { name: 'bias_offsets', values: [0, 2], message: 'sample: bias_offsets ends at 2, expected 1' },
    { name: 'allowed_offsets', values: [0, 0], message: 'sample: allowed_offsets ends at 0, expected 1' },
  ])('refuses: $message', async ({ name, values, message }) => {
    const poisoned = openTest(isa);
    const int = (...x: number[]) => poisoned.tensor(Int32Array.from(x));
    const lists = { bias_offsets: int(0, 1), allowed_offsets: int(0, 1), [name]: int(...values) };
    poisoned.ops.sample({
      logits: poisoned.tensor(random(2), [1, 2]),
      keys: poisoned.tensor(keysOf(1), [1, 4]),
      bias_tokens: int(0),
      bias: poisoned.tensor(Float32Array.of(1)),
      allowed: int(0),
      ...lists,
    });
    await expect(poisoned.synchronize()).rejects.toThrow(message);
    poisoned.dispose();
  });
});
