// The prefix tree against a list of all stored sequences, and its accounting of pages.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PagePool, pagesFor } from '../../../src/generate/cache/pages.js';
import { PrefixTree } from '../../../src/generate/cache/prefixes.js';
import { PAGE_TOKENS } from '../../../src/ops/cache.js';

/** Takes pages for `tokens`, stores them in the tree and releases them, like a row that ends. */
function store(pool: PagePool, tree: PrefixTree, tokens: readonly number[], role = 'base'): number[] {
  const pages = Array.from({ length: pagesFor(tokens.length) }, () => pool.take() as number);
  tree.insert(role, tokens, pages);
  for (const page of pages) pool.release(page);
  return pages;
}

const common = (a: readonly number[], b: readonly number[]) => {
  let length = 0;
  while (length < a.length && length < b.length && a[length] === b[length]) length++;
  return length;
};

/** Sequences that share prefixes: a few long pieces, concatenated, the last one cut. */
const sequence = fc
  .record({ parts: fc.array(fc.constantFrom(1, 2, 3), { minLength: 1, maxLength: 5 }), cut: fc.nat(49) })
  .map(({ parts, cut }) =>
    parts
      .flatMap((part) => Array.from({ length: 50 }, (_, i) => part * (i % 7)))
      .slice(0, 50 * parts.length - cut),
  );

const role = fc.constantFrom('base', 'adapter 3');

describe('PrefixTree', () => {
  it('finds the longest stored prefix, and the pages that hold it', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(role, sequence), { maxLength: 12 }),
        fc.array(fc.tuple(role, sequence), { maxLength: 5 }),
        (stored, asked) => {
          const pool = new PagePool(200);
          const tree = new PrefixTree(pool);
          /** The content of each page of the cache. */
          const content = new Map<number, string>();
          for (const [key, tokens] of stored) {
            const pages = Array.from({ length: pagesFor(tokens.length) }, () => pool.take() as number);
            for (const [i, page] of pages.entries())
              content.set(page, tokens.slice(0, (i + 1) * PAGE_TOKENS).join());
            tree.insert(key, tokens, pages);
            for (const page of pages) pool.release(page);
          }
          for (const [key, tokens] of [...asked, ...stored]) {
            const found = tree.find(key, tokens);
            const longest = stored.map(([other, held]) => (other === key ? common(held, tokens) : 0));
            expect(found.tokens).toBe(Math.max(0, ...longest));
            expect(found.pages).toHaveLength(pagesFor(found.tokens));
            for (const [i, page] of found.pages.entries()) {
              const held = tokens.slice(0, Math.min((i + 1) * PAGE_TOKENS, found.tokens)).join();
              expect(`${content.get(page)},`.startsWith(`${held},`)).toBe(true);
            }
          }
          expect(pool.free).toBe(200 - tree.size);
        },
      ),
    );
  });

  it('evicts the least recently used page first, and frees every page at the end', () => {
    fc.assert(
      fc.property(fc.array(sequence, { minLength: 1, maxLength: 12 }), fc.nat(20), (stored, evictions) => {
        const pool = new PagePool(100);
        const tree = new PrefixTree(pool);
        for (const tokens of stored) store(pool, tree, tokens);
        const last = stored.at(-1) as number[];
        const spared = Math.min(evictions, tree.size - pagesFor(last.length));
        for (let i = 0; i < spared; i++) expect(tree.evict()).toBe(true);
        expect(tree.find('base', last).tokens).toBe(last.length);
        while (tree.evict());
        expect([tree.size, pool.free]).toEqual([0, 100]);
      }),
    );
  });

  it('evicts no page that a row uses, and a page before it only if nothing else is left', () => {
    const pool = new PagePool(4);
    const tree = new PrefixTree(pool);
    const tokens = Array.from({ length: 130 }, (_, i) => i);
    const [first, second, third] = store(pool, tree, tokens) as [number, number, number];
    const [other] = store(pool, tree, [9]) as [number];
    pool.retain(second);
    const references = () => [first, second, third, other].map((page) => pool.references(page));
    expect(tree.idle).toBe(3);
    expect([tree.evict(), references()]).toEqual([true, [1, 2, 0, 1]]);
    expect([tree.evict(), references()]).toEqual([true, [1, 2, 0, 0]]);
    expect([tree.evict(), references()]).toEqual([true, [0, 1, 0, 0]]);
    expect([tree.evict(), tree.idle, tree.size]).toEqual([false, 0, 0]);
    pool.release(second);
    expect(pool.free).toBe(4);
  });

  it('grows a page in place while its row fills it', () => {
    const pool = new PagePool(2);
    const tree = new PrefixTree(pool);
    const page = pool.take() as number;
    tree.insert('base', [1, 2], [page]);
    tree.insert('base', [1, 2, 3], [page]);
    expect(tree.find('base', [1, 2, 3, 4])).toMatchObject({ pages: [page], tokens: 3 });
    expect([tree.size, pool.references(page)]).toEqual([1, 2]);
  });

  it('replaces a page that is not full by that of a row that continued', () => {
    const pool = new PagePool(2);
    const tree = new PrefixTree(pool);
    const [short] = store(pool, tree, [1, 2]) as [number];
    const [long] = store(pool, tree, [1, 2, 3]) as [number];
    expect(tree.find('base', [1, 2, 3])).toMatchObject({ pages: [long], tokens: 3 });
    expect([pool.references(short), pool.references(long), tree.size]).toEqual([0, 1, 1]);
  });

  it('stores what follows the pages that a row gave up, if the tree has those', () => {
    const pool = new PagePool(8);
    const tree = new PrefixTree(pool);
    const tokens = Array.from({ length: 128 }, (_, i) => i);
    const [first] = store(pool, tree, tokens.slice(0, 64)) as [number];
    const second = pool.take() as number;
    tree.insert('base', tokens, [-1, second]);
    expect(tree.find('base', tokens)).toMatchObject({ pages: [first, second], tokens: 128 });
    tree.insert('other', tokens, [-1, second]);
    expect(tree.find('other', tokens)).toMatchObject({ pages: [], tokens: 0 });
  });

  it('forgets one role, or all', () => {
    const pool = new PagePool(8);
    const tree = new PrefixTree(pool);
    const tokens = Array.from({ length: 100 }, (_, i) => i);
    const kept = store(pool, tree, tokens, 'a');
    store(pool, tree, tokens, 'b');
    tree.clear('b');
    expect(tree.find('b', tokens).tokens).toBe(0);
    expect(tree.find('a', tokens)).toMatchObject({ pages: kept, tokens: 100 });
    tree.clear();
    expect([tree.find('a', tokens).tokens, tree.size, pool.free]).toEqual([0, 0, 8]);
  });
});
