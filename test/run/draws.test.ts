import { appendFileSync, existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { drawKey, openDraws } from '../../src/run/draws.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

it('keeps values over a crash, and none once they are cleared', () => {
  const path = join(temporaryDirectory(), 'draws.jsonl');
  const draws = openDraws(path);
  expect([draws.get('a'), draws.size, existsSync(path)]).toEqual([undefined, 0, false]);
  draws.keep('a', { text: 'x' });
  draws.keep('b', [1]);
  appendFileSync(path, '{"key":"c","val');
  const again = openDraws(path);
  expect([again.get('a'), again.get('b'), again.get('c'), again.size]).toEqual([
    { text: 'x' },
    [1],
    undefined,
    2,
  ]);
  again.clear();
  expect([again.size, existsSync(path)]).toEqual([0, false]);
  again.keep('d', 1);
  again.close();
  expect(openDraws(path).get('d')).toBe(1);
});

it('has other keys for other values', () => {
  const keys = [
    ['a', 1, [2]],
    ['a', 1, [3]],
    ['a', 12],
    ['b', 1, [2]],
  ].map(drawKey);
  expect(new Set(keys).size).toBe(4);
});
