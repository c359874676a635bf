import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { writePictures } from '../../src/report/pictures.js';
import { picture } from '../../src/report/svg/picture.js';

const xOf = (svg: string, kind: string) =>
  [...svg.matchAll(new RegExp(`class="${kind}" (?:cx|x1)="([\\d.]+)"`, 'g'))].map(([, x]) => Number(x));

it('draws rows over one axis: seeds as rings, means as dots, intervals as lines', () => {
  const format = (value: number) => `${value} %`;
  const rows = [
    { name: 'a < b', values: [1, 3], mean: 2 },
    { name: 'c', mean: 4, interval: [3, 5] as const },
    { name: 'nothing' },
  ];
  const svg = picture('solved & more', [{ title: 'axis', rows, format, line: 2 }]);
  expect(svg).toContain('<title>solved &amp; more</title>');
  expect(svg).toContain('a &lt; b');
  const [one, three] = xOf(svg, 'value') as [number, number];
  const [two, four] = xOf(svg, 'mean') as [number, number];
  expect(two).toBeCloseTo((one + three) / 2, 0);
  expect(four - three).toBeCloseTo(two - one, 0);
  expect(xOf(svg, 'interval')).toEqual([three]);
  expect(xOf(svg, 'zero')).toEqual([two]);
  expect(svg).toContain('>4 %</text>');
  // Names of any length fit beside the axis.
  const named = (name: string) => picture('', [{ title: '', rows: [{ name, mean: 7 }], format }]);
  const widthOf = (drawn: string) => Number(/width="(\d+)"/.exec(drawn)?.[1]);
  const [mean] = xOf(named('n'.repeat(60)), 'mean') as [number];
  expect(widthOf(named('n'.repeat(60))) - widthOf(named('n'))).toBeGreaterThan(59 * 7);
  expect(mean).toBeGreaterThan(60 * 7);
  // Nothing to draw is an empty picture, and one value has an axis.
  expect(picture('', [{ title: '', rows: [{ name: 'x' }], format }])).not.toContain('<g>');
  expect(picture('', [{ title: '', rows: [{ name: 'x', mean: 7 }], format }])).toContain('7 %');
  // An axis of shares has none above 1.
  const best = picture('', [{ title: '', rows: [{ name: 'x', mean: 1 }], format, isShare: true }]);
  const shown = [...best.matchAll(/>([\d.]+) %<\/text>/g)].map(([, value]) => Number(value));
  expect(Math.max(...shown)).toBe(1);
});

it('draws a file a column of a sweep, and refuses what has no table', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'pictures-'));
  await expect(writePictures(folder, join(folder, 'out'))).rejects.toThrow(/has no sweep\.json with results/);
  expect(existsSync(join(folder, 'out'))).toBe(false);
  const column = (values: Record<string, number>, mean: number) => ({ solved: { values, n: 2, mean } });
  const arms = [
    { arm: 'PRM', columns: column({ 1: 0.5, 2: 0.6 }, 0.55) },
    { arm: 'ORM', columns: column({ 1: 0.4, 2: 0.4 }, 0.4) },
  ];
  const differences = [
    { arm: 'ORM', to: 'PRM', column: 'solved', n: 2, mean: -0.15, interval: [-0.785, 0.485] },
    // The other way round, of a sweep that compares with both, says the same.
    { arm: 'PRM', to: 'ORM', column: 'solved', n: 2, mean: 0.15, interval: [-0.485, 0.785] },
  ];
  writeFileSync(join(folder, 'sweep.json'), JSON.stringify({ arms, differences }));
  const [path, ...more] = await writePictures(folder, join(folder, 'out'));
  expect([path, more]).toEqual([join(folder, 'out', 'solved.svg'), []]);
  const svg = readFileSync(path as string, 'utf8');
  expect(svg).toContain('solved, %: seeds');
  expect(svg).toContain('ORM − PRM');
  expect(xOf(svg, 'value').length).toBe(4);
  expect(xOf(svg, 'interval').length).toBe(1);
});
