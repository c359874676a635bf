// Elementary functions of the same bits in every engine: beside values to 60 digits, and no other is used where a number is trained or graded.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  asin,
  atan,
  atan2,
  cos,
  cosh,
  exp,
  hypot,
  log,
  log1p,
  power,
  sin,
  sinh,
} from '../../src/native/elementary.js';

const OWN = { asin, atan, cos, cosh, exp, log, log1p, sin, sinh };

const bits = (value: number) => {
  const bytes = Buffer.alloc(8);
  bytes.writeDoubleBE(value);
  return bytes.toString('hex');
};

/** The nearest doubles, by 60 decimal digits (Python's decimal). */
const NEAREST = {
  log: [
    [1e-300, 'c085963447f87fb5'],
    [0.1, 'c0026bb1bbb55515'],
    [0.5, 'bfe62e42fefa39ef'],
    [0.9, 'bfbaf8e8210a415c'],
    [1.0000001, '3e7ad7f2847b6492'],
    [2, '3fe62e42fefa39ef'],
    [10, '40026bb1bbb55516'],
    [1234.5, '401c79436f818745'],
    [1e300, '4085963447f87fb5'],
  ],
  exp: [
    [-700, '00d14f2b0fb9307f'],
    [-1, '3fd78b56362cef38'],
    [-0.1, '3fecf46d99d52b3a'],
    [1e-9, '3ff000000044b830'],
    [0.3, '3ff599058c8c1a96'],
    [1, '4005bf0a8b145769'],
    [10.5, '40e1bb7015e84d3b'],
    [700, '7f0d945df4f8ec8e'],
  ],
  cos: [
    [0.1, '3fefd712f9a817c1'],
    [1, '3fe14a280fb5068c'],
    [1.5707963267948966, '3c91a62633145c07'],
    [3, 'bfefae04be85e5d2'],
    [100, '3feb981dbf665fdf'],
    [32767.5, '3fe8b538b06fb01e'],
    [1048575, '3fe937a45bd49642'],
  ],
  sin: [
    [0.1, '3fb98eaecb8bcb2c'],
    [1, '3feaed548f090cee'],
    [1.5707963267948966, '3ff0000000000000'],
    [3, '3fc210386db6d55b'],
    [100, 'bfe03425b78c4db8'],
    [32767.5, '3fe455ceddf6197d'],
    [1048575, 'bfe3b32b2ca06654'],
    [1e8, '3fedcffca623a20b'],
  ],
} as const;

it.each(Object.keys(NEAREST) as (keyof typeof NEAREST)[])('%s has the bits of the nearest double', (name) => {
  expect(NEAREST[name].map(([x]) => [x, bits(OWN[name](x))])).toEqual(NEAREST[name]);
});

it('powers have the bits of the nearest double', () => {
  const nearest = [
    [10, -5, '3ee4f8b588e368f1'],
    [0.9, 4, '3fe4fec56d5cfaad'],
    [0.999, 7, '3fefc6d3e72229bc'],
    [0.999, 1000, '3fd788526411ed72'],
    [1.1, -3, '3fe80ac5565befd6'],
  ] as const;
  expect(nearest.map(([x, y]) => [x, y, bits(power(x, y))])).toEqual(nearest);
});

describe('beside the engine', () => {
  const ordered = new BigInt64Array(1);
  const place = (value: number) => {
    new Float64Array(ordered.buffer)[0] = value;
    return ordered[0] as bigint;
  };
  const apart = (a: number, b: number) => Math.abs(Number(place(a) - place(b)));

  it.each([
    ['exp', -700, 700, 2],
    ['log', 0, 3, 2],
    ['log', 1, 1e12, 2],
    ['log1p', -0.9, 9, 4],
    ['cos', -1e6, 1e6, 2],
    ['sin', -1e6, 1e6, 2],
    ['atan', -9, 9, 6],
    ['asin', -1, 1, 7],
    ['sinh', -9, 9, 4],
    ['cosh', -9, 9, 4],
  ] as const)('%s between %d and %d', (name, low, high, most) => {
    const xs = Array.from({ length: 2000 }, (_, i) => low + ((high - low) * (i + 0.37)) / 2000);
    expect(Math.max(...xs.map((x) => apart(OWN[name](x), Math[name](x))))).toBeLessThanOrEqual(most);
  });

  it('ends, zeros and signs', () => {
    expect([710, -746, -745, Number.NaN, -0].map(exp)).toEqual([Infinity, 0, 5e-324, Number.NaN, 1]);
    expect([0, -1, Infinity, Number.NaN].map(log)).toEqual([-Infinity, Number.NaN, Infinity, Number.NaN]);
    const pairs = [
      [-2, 3],
      [-2, -2],
      [-8, 1 / 3],
      [0, -1],
      [2, -1074],
      [10, 309],
      [1, Number.NaN],
      [5, 0],
    ] as const;
    expect(pairs.map(([x, y]) => power(x, y))).toEqual(pairs.map(([x, y]) => x ** y));
    expect([hypot(3, -4), hypot(0, -2), hypot(1e300, 1e300)]).toEqual([5, 2, Math.SQRT2 * 1e300]);
    expect(atan2(1, -1)).toBeCloseTo((3 * Math.PI) / 4, 15);
    expect(atan2(-1, -1)).toBeCloseTo((-3 * Math.PI) / 4, 15);
  });
});

/** Rooms and files whose numbers are only shown, waited by, or whole powers of two and of big integers. */
const SHOWN =
  /^(report|terminal|ui|hub|remote|cli)\/|^(corrections\/tally|generate\/captured|jinja\/operators)\.ts$/;

it('training and answers use no other', () => {
  const found = readdirSync('src', { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !SHOWN.test(name) && name !== 'native/elementary.ts')
    .flatMap((name) =>
      readFileSync(join('src', name), 'utf8')
        .split('\n')
        .filter((line) => !/^\s*(\*|\/\*|\/\/)/.test(line))
        .filter(
          (line) =>
            /\bMath\.(pow|exp|expm1|log|log1p|log10|cosh?|sinh?|tanh?|a(cos|sin|tan)h?|atan2|cbrt|hypot)\b/.test(
              line,
            ) || /(?<!\b2|^\s*\/?)(?<![/'*{]) \*\* (?!BigInt|[}'])/.test(line),
        )
        .map((line) => `${name}: ${line.trim()}`),
    );
  expect(found).toEqual([]);
});
