import { expect, it } from 'vitest';
import { selfTest } from '../../../src/cli/doctor/self-test.js';

it('passes here, and names what differs from the stored values', async () => {
  expect((await selfTest('cpu')).wrong).toEqual([]);
  const other = { logprob: -160, continuation: '14', losses: [8.431577, Number.NaN] };
  expect((await selfTest('cpu', {}, other)).wrong).toEqual([
    expect.stringMatching(/^log-probability -160\.\d+, stored -160$/),
    'generated "13", stored 14',
    expect.stringMatching(/^loss of step 2 7\.\d+, stored NaN$/),
  ]);
});
