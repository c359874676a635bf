// What the package ships, by name.
import { expect, it } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { describedNames, packageNames } from '../../src/models/base.js';
import { openTest } from '../ops/devices.js';

it('names its judges beside its models, each with what it is', async () => {
  expect(packageNames()).toContain('word-problems-judge');
  for (const name of packageNames()) expect(describedNames()).toContain(`${name} (`);
  const device = openTest();
  try {
    await expect(loadModel(device, 'word-problem-judge')).rejects.toThrow(
      /one of those of the package, .*word-problems-judge \(judges their steps\)/,
    );
  } finally {
    device.dispose();
  }
});
