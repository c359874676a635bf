// `steptrain doctor` where no addon loads: the rows that are known, and the reason in lines of its own.
import { expect, it, vi } from 'vitest';
import { StepTrainError } from '../../../src/native/errors.js';
import { cli } from '../run-cli.js';

vi.mock('../../../src/native/addon.js', async (original) => ({
  ...(await original<typeof import('../../../src/native/addon.js')>()),
  addon: () => {
    throw new StepTrainError('E_ADDON', 'the native addon of steptrain did not load');
  },
}));

it('says that it is not loaded, and why', async () => {
  const { code, stdout, stderr } = await cli('doctor');
  expect(code).toBe(1);
  expect(stdout.split('\n').at(-1)).toBe('addon      not loaded');
  expect(stderr).toBe('the native addon of steptrain did not load');
});
