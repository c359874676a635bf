// The page pool against a simple count of owners: no page is handed out twice, and none is lost.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PagePool, pagesFor } from '../../../src/generate/cache/pages.js';

describe('PagePool', () => {
  it('counts owners like a plain list', () => {
    const actions = fc.array(
      fc.record({ what: fc.constantFrom('take', 'retain', 'release'), which: fc.nat(1000) }),
      { maxLength: 200 },
    );
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 8 }), actions, (size, steps) => {
        const pool = new PagePool(size);
        const owners: number[] = [];
        for (const { what, which } of steps) {
          const at = which % Math.max(1, owners.length);
          if (what === 'take') {
            const page = pool.take();
            expect(page === undefined).toBe(new Set(owners).size === size);
            if (page === undefined) continue;
            expect(page).toBeGreaterThanOrEqual(0);
            expect(page).toBeLessThan(size);
            expect(owners).not.toContain(page);
            owners.push(page);
          } else if (owners.length > 0 && what === 'retain') {
            pool.retain(owners[at] as number);
            owners.push(owners[at] as number);
          } else if (owners.length > 0) {
            pool.release(owners[at] as number);
            owners.splice(at, 1);
          }
          expect(pool.free).toBe(size - new Set(owners).size);
          for (let page = 0; page < size; page++)
            expect(pool.references(page)).toBe(owners.filter((owned) => owned === page).length);
        }
        for (const page of owners) pool.release(page);
        expect(pool.free).toBe(size);
      }),
    );
  });

  it.each([
    ['a free page', 0],
    ['a page that it does not have', 4],
    ['no page at all', -1],
  ])('refuses to count %s', (_, page) => {
    const pool = new PagePool(4);
    pool.take();
    pool.release(0);
    expect(() => pool.retain(page)).toThrow(`page ${page} of the cache was retained, and nobody owns it`);
    expect(() => pool.release(page)).toThrow(`page ${page} of the cache was released, and nobody owns it`);
    expect(pool.free).toBe(4);
  });
});

it.each([
  [0, 0],
  [1, 1],
  [64, 1],
  [65, 2],
])('%i tokens need %i pages', (tokens, pages) => {
  expect(pagesFor(tokens)).toBe(pages);
});
