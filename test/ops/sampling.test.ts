import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { philox4x32 } from '../../src/random/philox.js';
import type { Device } from '../../src/runtime/device.js';
import { isas, onGpu, openTest } from './devices.js';
import { maxDifference, random } from './numbers.js';

interface Settings {
  temperature: number;
  top_k: number;
  top_p: number;
  min_p: number;
}

const PLAIN: Settings = { temperature: 1, top_k: 0, top_p: 1, min_p: 0 };

/** What the logits warpers of transformers leave of one row: `logprobs` by token. */
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

/** Rows of [seed low, seed high, position, 0]. */
const keysOf = (rows: number, seed = 7) =>
  Int32Array.from({ length: 4 * rows }, (_, i) => [seed, 0x9abcdef0, Math.floor(i / 4), 0][i % 4]!);

async function draw(
  device: Device,
  rows: readonly (readonly number[])[],
  settings: Partial<Settings> = {},
  keys = keysOf(rows.length),
): Promise<Drawn> {
  const logits = device.tensor(Float32Array.from(rows.flat()), [rows.length, rows[0]?.length ?? 0]);
  const given = { logits, keys: device.tensor(keys, [rows.length, 4]) };
  const before = device.stats().launches;
  const found = device.ops.sample({ ...given, ...PLAIN, ...settings, tempered_logprobs: true });
  const read = async (name: keyof typeof found) => Array.from(await found[name].read());
  const drawn = {
    tokens: await read('tokens'),
    logprobs: await read('logprobs'),
    sampling: await read('sampling_logprobs'),
    tempered: await read('tempered_logprobs'),
  };
  expect(device.stats().launches - before).toBe(device.info().name !== 'cpu' && rows.length === 0 ? 0 : 1);
  for (const tensor of [...Object.values(given), ...Object.values(found)]) tensor.dispose();
  return drawn;
}

const logSoftmax = (z: readonly number[]) => {
  const most = Math.max(...z);
  const lse = most + Math.log(z.reduce((total, x) => total + Math.exp(x - most), 0));
  return z.map((x) => x - lse);
};

/** temperature, top-k, top-p and min-p written as transformers does: by sorting, on log-probs in float64. */
function warp(logits: readonly number[], s: Settings): number[] {
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
      if (cumulative <= 1 - s.top_p) removed.add(token);
    }
    drop((token) => removed.has(token));
  }
  const p = logSoftmax(z).map(Math.exp);
  const least = s.min_p * Math.max(...p);
  drop((token) => p[token]! < least);
  return logSoftmax(z);
}

/** The token at the row's Philox number of a distribution, and how far the number lies from a border. */
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
    'draws from what transformers leaves at temperature $temperature, top-k $top_k, top-p $top_p, min-p $min_p',
    async ({ logprobs, ...given }) => {
      const logits = golden.logits.map((x) => Math.fround(x ?? Number.NEGATIVE_INFINITY));
      const rows = 6_000;
      const drawn = await draw(
        device,
        Array.from({ length: rows }, () => logits),
        given,
      );
      // By logit: among equals at the edge transformers keeps an unspecified one.
      const kept = Object.entries(logprobs).map(
        ([token, logprob]) => [logits[Number(token)]!, logprob] as const,
      );
      const expected = new Map(kept);
      const counts = new Map<number, number>();
      for (const [row, token] of drawn.tokens.entries()) {
        const logit = logits[token]!;
        expect(expected.has(logit)).toBe(true);
        expect(Math.abs(drawn.sampling[row]! - expected.get(logit)!)).toBeLessThan(2e-6);
        counts.set(logit, (counts.get(logit) ?? 0) + 1);
      }
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
            const filtered = warp(z, given);
            const { token, margin } = invert(filtered, keys.subarray(4 * row));
            const found = drawn.tokens[row]!;
            // Equals at the edge of top-p may round to either side, as may a draw at the border of two tokens.
            if (spread > 0 && margin > 1e-5) {
              expect(found).toBe(token);
              expect(Math.abs(drawn.sampling[row]! - filtered[found]!)).toBeLessThan(2e-5);
            }
            expect(Math.abs(drawn.logprobs[row]! - logSoftmax(z)[found]!)).toBeLessThan(2e-5);
            const tempered = logSoftmax(z.map((x) => x / given.temperature));
            expect(Math.abs(drawn.tempered[row]! - tempered[found]!)).toBeLessThan(1e-4);
          }
        },
      ),
      { numRuns: 60 },
    ));

  it.each([40, 9_001])(
    'gives the log-probs of head_logprobs to the bit, over %i tokens',
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
        const drawn = device.ops.sample({
          logits,
          keys,
          ...PLAIN,
          temperature,
          top_p,
          tempered_logprobs: true,
        });
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
  ])('draws the same for a row whatever is around it and however many threads ($name)', async ({ given }) => {
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

  it('draws by all four words of the key', async () => {
    const rows = Array.from({ length: 5 }, () => new Array<number>(5_000).fill(0));
    const words = [0, 1, 2, 3, 4].flatMap((row) =>
      [1, 2, 3, 4].map((word, i) => (i + 1 === row ? -word : word)),
    );
    const { tokens } = await draw(device, rows, {}, Int32Array.from(words));
    expect(new Set(tokens).size).toBe(5);
  });

  it('takes the first of the most likely tokens at temperature 0', async () => {
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

  it('takes no rows and one token', async () => {
    expect((await draw(device, [])).tokens).toEqual([]);
    expect(await draw(device, [[3]], { top_p: 0.5 })).toEqual({
      tokens: [0],
      logprobs: [0],
      sampling: [0],
      tempered: [0],
    });
  });

  const { NaN: nan, POSITIVE_INFINITY: infinity, NEGATIVE_INFINITY: never } = Number;
  it.each([
    {
      rows: [
        [0, 1],
        [0, nan],
      ],
      given: {},
      message: 'sample: logits[1, 1] is nan, expected a number or -inf',
    },
    { rows: [[infinity, 1]], given: {}, message: 'sample: logits[0, 0] is inf, expected a number or -inf' },
    { rows: [[never, never]], given: {}, message: 'sample: every logit of row 0 is -inf' },
    { rows: [[]], given: {}, message: 'sample: the vocabulary is empty' },
    { rows: [[0]], given: { temperature: -1 }, message: 'sample: temperature is -1, expected 0 or more' },
    { rows: [[0]], given: { temperature: nan }, message: 'sample: temperature is nan' },
    { rows: [[0]], given: { top_k: -1 }, message: 'sample: top_k is -1, expected 0 (off) or more' },
    { rows: [[0]], given: { top_p: 0 }, message: 'sample: top_p is 0, expected more than 0' },
    { rows: [[0]], given: { min_p: 2 }, message: 'sample: min_p is 2, expected 0 (off) to 1' },
  ])('refuses: $message', async ({ rows, given, message }) => {
    const poisoned = openTest(isa);
    await expect(draw(poisoned, rows, given)).rejects.toThrow(message);
    poisoned.dispose();
  });
});
