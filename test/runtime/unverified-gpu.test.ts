import { expect, it } from 'vitest';
import type { DeviceInfo } from '../../src/native/addon.js';
import { unverified } from '../../src/runtime/unverified-gpu.js';

const info = (isa: string, name = 'cuda:0') => ({ name, description: 'NVIDIA GB10', isa }) as DeviceInfo;

it('says of every GPU but the kind of an H100 that the kernels have not run there', () => {
  for (const isa of ['sm_80', 'sm_89', 'sm_100', 'sm_103', 'sm_121'])
    expect(unverified(info(isa))).toContain(
      `cuda:0 (NVIDIA GB10, ${isa}): the CUDA kernels have run on an H100 alone`,
    );
  expect(unverified(info('sm_90'))).toBeUndefined();
  expect(unverified(info('neon', 'cpu'))).toBeUndefined();
});
