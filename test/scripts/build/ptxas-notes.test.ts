// A strict build starts nvcc by scripts/build/ptxas-notes.mjs, which refuses products that ptxas serialises.
import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
// @ts-expect-error: a script has no types.
import { launchers } from '../../../scripts/build/compile.mjs';

const SERIALISED =
  'ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to …';
const ARRIVE =
  'ptxas info    : (C7519) Potential Performance Loss: warpgroup.arrive is injected in around line 9 …';

const started = (said: string, code = 0) => {
  const compiler = ['-e', `console.error(${JSON.stringify(said)}); process.exit(${code})`];
  return spawnSync(process.execPath, ['scripts/build/ptxas-notes.mjs', process.execPath, ...compiler], {
    encoding: 'utf8',
  });
};

it('fails where ptxas says so, and passes on what the compiler says', () => {
  const { status, stderr } = started(SERIALISED);
  expect(status).toBe(1);
  expect(stderr).toBe(`${SERIALISED}\nsteptrain: refused in a strict build: ${SERIALISED}\n`);
});

it('ends as the compiler ends otherwise', () => {
  expect(started(ARRIVE)).toMatchObject({ status: 0, stderr: `${ARRIVE}\n` });
  expect(started('error: expected a ;', 3).status).toBe(3);
});

it('is what CMake starts in a strict build alone, before ccache', () => {
  expect(launchers(false, false)).toEqual({});
  expect(launchers(true, true)).toEqual({
    CMAKE_CXX_COMPILER_LAUNCHER: 'ccache',
    CMAKE_CUDA_COMPILER_LAUNCHER: expect.stringMatching(/node;.*\/scripts\/build\/ptxas-notes\.mjs;ccache$/),
  });
});
