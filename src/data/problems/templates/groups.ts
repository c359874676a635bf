/** Equal groups: so many of so many each. */
import type { Draft, Sentence, Story } from '../draft.js';
import type { Operand } from '../problem.js';
import { comparisons, lastHas } from './comparisons.js';
import { changes, hasAtFirst, hasNow } from './events.js';

function packed(d: Draft, person: string, thing: string): { readonly buys: Sentence; readonly to: Operand } {
  const what = d.container();
  const { k, a, to } = d.groups(what);
  const buys = d.told(
    `${person} buys ${k} ${what} with ${a} ${thing} each.`,
    `There are ${k} ${what} for ${person} with ${a} ${thing} in each.`,
    `${person} gets ${k} ${what}, and in each are ${a} ${thing}.`,
  );
  return { buys, to };
}

/** Boxes, perhaps of two kinds, and what happens to them. */
export function boxes(d: Draft): Story {
  const [person, thing] = [d.person(), d.thing()];
  const first = packed(d, person, thing);
  const sentences = [first.buys];
  let from = first.to;
  let count = d.operations - 1;
  if (count >= 2) {
    const second = packed(d, person, thing);
    sentences.push(second.buys);
    from = d.step('all', from, '+', second.to);
    count -= 2;
  }
  const later = changes(d, { person, thing, from, count, ops: ['+', '-'] });
  return { sentences: [...sentences, ...later.sentences], ...hasNow(d, person, thing) };
}

/** Some things at a price each; an even number of operations asks for the money that is left. */
export function shopping(d: Draft): Story {
  const person = d.person();
  const sentences: Sentence[] = [];
  let cost: Operand | undefined;
  for (let i = 0; i < Math.ceil(d.operations / 2); i++) {
    const thing = d.thing();
    const { k, a, to } = d.groups(thing, 20);
    sentences.push({
      text: d.say(
        `${person} buys ${k} ${thing} for ${a} dollars each.`,
        `${person} needs ${a} dollars for each of ${k} ${thing}.`,
        `There are ${k} ${thing} for ${person}, and each costs ${a} dollars.`,
      ),
      movable: true,
    });
    cost = cost === undefined ? to : d.step('cost', cost, '+', to);
  }
  if (d.operations % 2 === 1)
    return {
      sentences,
      question: d.say(
        `How many dollars does ${person} need?`,
        `How many dollars does ${person} need for all?`,
        `What does it cost ${person}?`,
      ),
      noun: `the cost for ${person}`,
    };
  const { has } = d.enough('left', cost as Operand);
  const opening = hasAtFirst(d, person, has, 'dollars');
  return {
    sentences: [opening, ...sentences],
    question: d.say(
      `How many dollars does ${person} have left?`,
      `How many dollars are left at the end?`,
      `Now how many dollars are left with ${person}?`,
    ),
    noun: `the number of dollars left with ${person}`,
  };
}

/** A story about a book, some pages of which are read. */
export function reading(d: Draft): Story {
  if (d.operations < 2) return d.fail();
  const person = d.person();
  const { k, a, to } = d.groups('read');
  const sentences = [
    d.told(
      `${person} reads ${a} pages each day for ${k} days.`,
      `For ${k} days ${person} reads ${a} pages each day.`,
      `There are ${k} days, and each day ${person} reads ${a} pages.`,
    ),
  ];
  let read = to;
  for (let i = 0; i < d.operations - 2; i++) {
    const { by, to: more } = d.change('read', read, ['+']);
    read = more;
    sentences.push(
      d.told(
        `${person} reads ${by} more pages.`,
        `On another day ${person} reads ${by}.`,
        `Then ${person} reads ${by} more.`,
      ),
    );
  }
  const { has } = d.enough('left', read);
  return {
    sentences: [
      d.told(
        `${person} has a book with ${has} pages.`,
        `A book has ${has} pages.`,
        `There are ${has} pages in the book of ${person}.`,
      ),
      ...sentences,
    ],
    question: d.say(
      `How many pages are left for ${person}?`,
      'How many pages are left at the end?',
      'Now how many pages are left?',
    ),
    noun: 'the number of pages left',
  };
}

/** Rows of seats, some of them taken. */
export function seats(d: Draft): Story {
  const { k, a, to } = d.groups('seats');
  const sentences = [
    d.told(
      `A hall has ${k} rows with ${a} seats each.`,
      `There are ${k} rows in a hall with ${a} seats in each.`,
      `A hall has ${k} rows, and in each are ${a} seats.`,
    ),
  ];
  let free = to;
  for (let i = 1; i < d.operations; i++) {
    const { op, by, to: next } = d.change('free', free, ['+', '-']);
    free = next;
    sentences.push(
      op === '+'
        ? d.told(`${by} more seats come.`, `People bring ${by} more seats.`, `Then there are ${by} more.`)
        : d.told(`${by} seats are taken.`, `People take ${by} seats.`, `Then ${by} of them are taken.`),
    );
  }
  return {
    sentences,
    question: d.say(
      'How many seats are free?',
      'How many seats are free at the end?',
      'Now how many seats are free?',
    ),
    noun: 'the number of seats that are free',
  };
}

/** Money for each day, and what happens to it. Held out: all its words are known from other templates. */
export function wages(d: Draft): Story {
  if (d.operations < 2) return d.fail();
  const person = d.person();
  const { k, a, to } = d.groups('all');
  const gets = d.told(
    `${person} gets ${a} dollars each day for ${k} days.`,
    `For ${k} days ${person} gets ${a} dollars each day.`,
    `There are ${k} days, and each day ${person} gets ${a} dollars.`,
  );
  const later = changes(d, { person, thing: 'dollars', from: to, count: d.operations - 1, ops: ['+', '-'] });
  return { sentences: [gets, ...later.sentences], ...hasNow(d, person, 'dollars') };
}

/**
 * A story about boxes of one person, and a comparison with others. Held out: all its words are known from other
 * templates.
 */
export function boxedComparison(d: Draft): Story {
  if (d.operations < 2) return d.fail();
  const [person, thing] = [d.person(), d.thing()];
  const { buys, to } = packed(d, person, thing);
  const chain = comparisons(d, person, to, d.operations - 1);
  return { sentences: [buys, ...chain.sentences], ...lastHas(d, chain, thing) };
}
