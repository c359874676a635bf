import { expect, it } from 'vitest';
import { leftOut } from './left-out.js';

const skipped = (file: string, name: string, source = '') => ({ file, name, source });

it('counts what skipped tests need, most first', () => {
  expect(
    leftOut([
      skipped('test/report/browser.test.ts', 'in a browser > plots'),
      skipped('test/cuda/gemm.test.ts', 'gemm on cuda:0 > agrees'),
      skipped('test/ops/gemm.test.ts', 'products on cuda:0 > agree'),
      skipped('test/data/split.test.ts', 'on PRM800K > splits', "sharedPath('data/x')"),
      skipped('test/e2e/cluster.test.ts', 'a run > under mpirun ends'),
    ]),
  ).toBe(
    'skipped 5 tests: 2 need a GPU and nvcc, 1 need Chromium (STEPTRAIN_CHROMIUM), 1 need ../shared, 1 need MPI',
  );
});

it('says nothing where nothing was skipped', () => expect(leftOut([])).toBeUndefined());
