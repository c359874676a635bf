import { expect, it } from 'vitest';
import { shortNames } from '../../src/report/compare.js';

it('shortens the paths of runs to what tells them apart', () => {
  expect(shortNames(['/runs/a/x', '/runs/b/x'])).toEqual(['a/x', 'b/x']);
  expect(
    shortNames(['/runs/SFT/sft.learning_rate=0.1/seed-1', '/runs/SFT/sft.learning_rate=0.1/seed-2']),
  ).toEqual(['seed-1', 'seed-2']);
  expect(shortNames(['/r/SFT/a.b.rate=0.1/seed-1', '/r/SFT/a.b.rate=0.2/seed-1', '/r/v1.5/seed-1'])).toEqual([
    'rate=0.1/seed-1',
    'rate=0.2/seed-1',
    'v1.5/seed-1',
  ]);
});

it('keeps the whole key of a path where its last word does not tell two apart', () => {
  expect(shortNames(['/r/a.rate=1', '/r/b.rate=1'])).toEqual(['a.rate=1', 'b.rate=1']);
});
