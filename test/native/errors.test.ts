// Errors as a program prints and logs them.
import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import { DisposedError, invalid, StepTrainError } from '../../src/native/errors.js';

test('an error that is printed whole shows the fields that it has, and no empty ones', () => {
  for (const error of [invalid('n: expected 1'), new DisposedError('a device')])
    expect(inspect(error)).not.toMatch(/\b(hint|op|opNumber|scope|location):/);
  const failed = new StepTrainError('E_SHAPE', 'failed', { op: 'gemm', opNumber: 7, scope: 'policy' });
  expect(inspect(failed)).toMatch(/op: 'gemm'/);
  expect(inspect(failed)).toMatch(/opNumber: 7/);
  expect(inspect(failed)).not.toMatch(/location:/);
  expect(failed.toJSON()).toEqual({
    ...{ name: 'StepTrainError', code: 'E_SHAPE', message: 'failed' },
    ...{ op: 'gemm', opNumber: 7, scope: 'policy' },
  });
});
