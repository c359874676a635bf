// Byte-pair encoding on ids by a heap, beside a plain one on texts.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Merges } from '../../src/tokenizer/byte-pairs.js';

/** Merges the pair of the least rank, the leftmost of them, until none is left. */
function plain(word: string, ranks: ReadonlyMap<string, number>): string[] {
  const symbols = [...word];
  for (;;) {
    const all = symbols.slice(1).map((right, i) => ranks.get(`${symbols[i]} ${right}`) ?? Infinity);
    const least = Math.min(...all, Infinity);
    if (least === Infinity) return symbols;
    const at = all.indexOf(least);
    symbols.splice(at, 2, `${symbols[at]}${symbols[at + 1]}`);
  }
}

const refuse = (what: string): never => {
  throw new Error(what);
};

const LETTERS = ['a', 'b', '\u{1f600}'];

it('merges as the definition says, whatever the merges, one that comes twice too', () => {
  const picks = fc.array(fc.tuple(fc.nat(), fc.nat()), { maxLength: 25 });
  const words = fc.array(fc.array(fc.constantFrom(...LETTERS), { maxLength: 60 }), { maxLength: 10 });
  fc.assert(
    fc.property(picks, words, fc.boolean(), (picks, words, asLists) => {
      const tokens = [...LETTERS];
      const merges: [string, string][] = [];
      for (const [one, other] of picks) {
        const pair = [tokens[one % tokens.length], tokens[other % tokens.length]] as [string, string];
        merges.push(pair);
        if (!tokens.includes(pair.join(''))) tokens.push(pair.join(''));
      }
      const own = new Merges(
        asLists ? merges : merges.map((pair) => pair.join(' ')),
        (token) => {
          const id = tokens.indexOf(token);
          return id < 0 ? undefined : 1000 * id;
        },
        refuse,
      );
      const ranks = new Map(merges.map((pair, rank) => [pair.join(' '), rank]));
      for (const word of words) {
        const text = word.join('');
        expect(own.encode(text)).toEqual(plain(text, ranks).map((token) => 1000 * tokens.indexOf(token)));
      }
    }),
  );
});
