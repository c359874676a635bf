// On a GPU a row has the same bits in any batch on one side of a border. The pages that promise it name the borders, which are
// those of the kernels and of the tests that compare bits (test/api/model.test.ts, test/cuda).
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import type { Device } from '../../src/runtime/device.js';
import { roundAlike } from '../cuda/gpu.js';

const constant = (file: string, name: string) =>
  Number(new RegExp(`\\b${name} = (\\d+);`).exec(readFileSync(file, 'utf8'))?.[1]);
const few = constant('cuda/gemm/few_rows.cuh', 'kMaxRows');
const fewest = constant('cuda/gemm/few_rows_launch.cuh', 'kMostPortable');

it.each(['concepts/overview', 'how-to/embed', 'how-to/generate', 'how-to/judges', 'how-to/serve'])(
  'docs/%s.md names the rows where the same bits end on a GPU',
  (page) => {
    const text = readFileSync(`docs/${page}.md`, 'utf8').replaceAll(/\s+/g, ' ');
    expect(text).toMatch(
      new RegExp(
        `up to ${few} tokens[^(]*\\(on Hopper (among those )?of up to ${fewest}, and of ${fewest + 1} to ${few}\\)`,
      ),
    );
  },
);

it('the tests compare bits up to the same borders', () => {
  const on = (isa: string) => ({ info: () => ({ isa }) }) as Device;
  for (const [isa, borders] of [
    ['sm_90', [fewest, few]],
    ['sm_80', [few]],
  ] as const)
    for (let rows = 1; rows < few + 3; rows++)
      expect(roundAlike(on(isa), rows, rows + 1), `${isa}: ${rows}`).toBe(!borders.includes(rows as never));
  expect(roundAlike(on('avx512'), few, few + 1)).toBe(true);
});
