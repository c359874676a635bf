import { describe, expect, it } from 'vitest';
import { equationsIn } from '../../../src/data/equations/equations.js';
import { carried } from '../../../src/data/planted/carry.js';
import { PLANTED_KINDS, type PlantedKind, slips, written } from '../../../src/data/planted/kinds.js';
import { plantedRecord } from '../../../src/data/planted/plant.js';
import { PhiloxStream } from '../../../src/random/philox.js';

/** All kinds fit somewhere. */
const problem = {
  problem:
    'Ann reads 11 pages an hour for 3 hours a day, and twice as many as Bob. How many more pages than Bob does Ann read in 2 weeks, without the 9, 4 and 6 that both skip?',
  solution: [
    'Ann reads 11 * 3 = <<11*3=33>>33 pages a day.',
    'In a week that is 33 * 7 = <<33*7=231>>231 pages.',
    'In 2 weeks it is 231 * 2 = <<231*2=462>>462 pages, without 9 + 4 + 6 = <<9+4+6=19>>19.',
    'Both skip 9 + 4 + 6 = <<9+4+6=19>>19 pages.',
    'So it is 462 - 19 = <<462-19=443>>443 pages.',
    '#### 443',
  ].join('\n'),
  answer: '443',
};
const simple = { ...problem, solution: problem.solution.replace(', without 9 + 4 + 6 = <<9+4+6=19>>19', '') };

const of = (kind: PlantedKind, index = 1) =>
  plantedRecord(simple, index, { seed: 1, wrong: 1, kinds: { [kind]: 1 } });

describe('a planted error', () => {
  it.each(PLANTED_KINDS)('of kind %s: right before, wrong with its kind, unlabelled behind', (kind) => {
    for (let index = 0; index < 20; index++) {
      const record = of(kind, index);
      expect(record?.steps.map(({ text }) => text).join()).not.toContain('<<');
      const at = record?.steps.findIndex(({ label }) => label === 0) ?? -1;
      expect(record?.steps[at]).toMatchObject({ label: 0, error: kind });
      expect(record?.steps.map(({ label }) => label)).toEqual(
        record?.steps.map((_, i) => (i < at ? 1 : i === at ? 0 : null)),
      );
    }
  });

  it.each(PLANTED_KINDS)('of kind %s leaves all arithmetic true but that of a slip', (kind) => {
    for (let index = 0; index < 20; index++) {
      for (const { text, label } of of(kind, index)?.steps ?? [])
        for (const { holds } of equationsIn(text).equations)
          expect([kind, text, holds]).toEqual([kind, text, !(kind === 'slip' && label === 0)]);
    }
  });

  it('goes on in the lines behind', () => {
    const places = Array.from({ length: 40 }, (_, index) => of('operator', index)?.steps ?? []);
    const early = places.filter(([first]) => first?.label === 0);
    expect(early.length).toBeGreaterThan(3);
    for (const [first, second] of early) {
      const wrong = equationsIn(first?.text ?? '').equations[0]?.result;
      expect(second?.text).toContain(`that is ${first?.text.slice(wrong?.at, wrong?.end)} * 7`);
    }
  });

  it('is the same for the same seed, and another for another', () => {
    const texts = (seed: number) => JSON.stringify(plantedRecord(simple, 1, { seed, wrong: 1 }));
    expect(texts(1)).toBe(texts(1));
    expect(new Set([1, 2, 3, 4, 5, 6].map(texts)).size).toBeGreaterThan(2);
  });

  it('stands in as many solutions as are asked for; the others are right', () => {
    const all = Array.from({ length: 400 }, (_, i) => plantedRecord(simple, i, { seed: 5, wrong: 0.25 }));
    const wrong = all.filter((record) => record?.steps.some(({ label }) => label === 0)).length;
    expect(wrong).toBeGreaterThan(70);
    expect(wrong).toBeLessThan(130);
    const right = all.find((record) => record?.outcome === 1);
    expect(right?.steps.map(({ label }) => label)).toEqual([1, 1, 1, 1, 1]);
  });

  it('is not planted where the right value is also a number of the problem, and so cannot be followed', () => {
    const twice = { ...simple, problem: `${simple.problem} 33 231 462 19 443` };
    for (const kind of PLANTED_KINDS)
      expect(plantedRecord(twice, 1, { seed: 1, wrong: 1, kinds: { [kind]: 1 } })).toBeUndefined();
  });
});

describe('what follows from a wrong value', () => {
  const from = { over: 33n, under: 1n };
  it('replaces it wherever it is named, and computes anew', () => {
    expect(carried('The 33 pages are 33 * 7 = <<33*7=231>>231, so 231.', [{ from, to: '30' }])?.text).toBe(
      'The 30 pages are 30 * 7 = 210, so 210.',
    );
  });
  it('ends where the numbers are none that somebody would write', () => {
    expect(carried('33 / 7 = 4.71', [{ from, to: '32' }])).toBeUndefined();
    expect(carried('33 - 20 = 13', [{ from, to: '10' }])).toBeUndefined();
  });
  it('leaves other lines alone', () => {
    expect(carried('He has 5 * 3 = <<5*3=15>>15.', [{ from, to: '30' }])).toEqual({
      text: 'He has 5 * 3 = 15.',
      isChanged: false,
      changed: [{ from, to: '30' }],
    });
  });
});

it('slips are other numbers above 0 in the same form', () => {
  for (let i = 0; i < 50; i++) {
    for (const wrong of slips('1,204', new PhiloxStream(1, 2, i))) {
      expect(Number(wrong)).toBeGreaterThan(0);
      expect(wrong).toMatch(/^[1-9]\d*$/);
    }
    for (const wrong of slips('4.50', new PhiloxStream(1, 2, i))) expect(wrong).toMatch(/^\d+\.\d\d$/);
  }
});

it.each([
  [{ over: 9n, under: 2n }, '4.50'],
  [{ over: 1n, under: 20n }, '0.05'],
  [{ over: 12n, under: 1n }, '12'],
  [{ over: 1n, under: 3n }, undefined],
  [{ over: -1n, under: 1n }, undefined],
])('a value as it is written: %o', (value, text) => expect(written(value)).toBe(text));
