/** People who have more or fewer than others. */
import type { Draft, Sentence, Story } from '../draft.js';
import type { Operand } from '../problem.js';
import { changes, hasAtFirst } from './events.js';

interface Chain {
  readonly people: readonly string[];
  readonly values: readonly Operand[];
  readonly sentences: Sentence[];
}

/** A chain in which each person is compared with the one before; the first has `from`. */
export function comparisons(d: Draft, first: string, from: Operand, count: number): Chain {
  const people = [first];
  const values = [from];
  const sentences: Sentence[] = [];
  for (let i = 0; i < count; i++) {
    const [known, next] = [people[i] as string, d.person()];
    const { op, by, to } = d.change(next, values[i] as Operand, ['+', '-', '×']);
    const text =
      op === '+'
        ? d.say(
            `${next} has ${by} more than ${known}.`,
            `${next} has as many as ${known} and ${by} more.`,
            `${known} has ${by} fewer than ${next}.`,
          )
        : op === '-'
          ? d.say(
              `${next} has ${by} fewer than ${known}.`,
              `${next} would need ${by} more to have as many as ${known}.`,
              `${known} has ${by} more than ${next}.`,
            )
          : d.say(
              `${next} has ${by} times as many as ${known}.`,
              `${next} has ${by} times the number of ${known}.`,
              `The number of ${next} is ${by} times as large as the number of ${known}.`,
            );
    sentences.push({ text, movable: true });
    people.push(next);
    values.push(to);
  }
  return { people, values, sentences };
}

function opened(d: Draft, count: number): Chain & { readonly thing: string } {
  const [first, thing] = [d.person(), d.thing()];
  const from = d.start();
  const chain = comparisons(d, first, from, count);
  const opening = d.told(
    `${first} has ${from.value} ${thing}.`,
    `There are ${from.value} ${thing} with ${first}.`,
    `At first look at ${first}, who has ${from.value} ${thing}.`,
  );
  return { ...chain, sentences: [opening, ...chain.sentences], thing };
}

/** The question about the amount of the last person of the chain. */
export function lastHas(d: Draft, { people }: Chain, thing: string): Pick<Story, 'question' | 'noun'> {
  const last = people.at(-1);
  return {
    question: d.say(
      `How many ${thing} does ${last} have?`,
      `How many ${thing} are there with ${last}?`,
      `What is the number of ${thing} of ${last}?`,
    ),
    noun: `the number of ${thing} of ${last}`,
  };
}

export function comparison(d: Draft): Story {
  const { thing, ...chain } = opened(d, d.operations);
  return { sentences: chain.sentences, ...lastHas(d, chain, thing) };
}

/** The last of the chain and somebody before. */
function pairOf(
  d: Draft,
  { people, values }: Chain,
): { readonly last: Operand; readonly other: Operand; readonly names: readonly [string, string] } {
  const at = d.draw.below(people.length - 1);
  return {
    last: values.at(-1) as Operand,
    other: values[at] as Operand,
    names: [people.at(-1) as string, people[at] as string],
  };
}

export function together(d: Draft): Story {
  if (d.operations < 2) return d.fail();
  const { thing, ...chain } = opened(d, d.operations - 1);
  const {
    last,
    other,
    names: [a, b],
  } = pairOf(d, chain);
  d.step('together', last, '+', other);
  return {
    sentences: chain.sentences,
    question: d.say(
      `How many ${thing} do ${a} and ${b} have together?`,
      `How many ${thing} are there with ${a} and ${b} together?`,
      `What is the number of ${thing} of ${a} and ${b} together?`,
    ),
    noun: `the number of ${thing} of ${a} and ${b} together`,
  };
}

export function difference(d: Draft): Story {
  if (d.operations < 2) return d.fail();
  const { thing, ...chain } = opened(d, d.operations - 1);
  const { last, other, names } = pairOf(d, chain);
  const isMore = last.value > other.value;
  d.step('difference', isMore ? last : other, '-', isMore ? other : last);
  const [a, b] = isMore ? names : [names[1], names[0]];
  return {
    sentences: chain.sentences,
    question: d.say(
      `How many more ${thing} does ${a} have than ${b}?`,
      `How many ${thing} would ${b} need to have as many as ${a}?`,
      `By what number of ${thing} is ${a} ahead of ${b}?`,
    ),
    noun: `the difference of the ${thing} of ${a} and ${b}`,
  };
}

/** Two people, each with changes of their own: who has more in the end? */
export function who(d: Draft): Story {
  if (d.operations < 2) return d.fail();
  const thing = d.thing();
  const counts = [Math.ceil(d.operations / 2), Math.floor(d.operations / 2)];
  const parts = counts.map((count) => {
    const person = d.person();
    const from = d.start();
    const opening = hasAtFirst(d, person, from.value, thing);
    const { sentences, to } = changes(d, { person, thing, from, count });
    return { person, to, sentences: [opening, ...sentences] };
  });
  const [a, b] = parts as [(typeof parts)[0], (typeof parts)[0]];
  if (a.to.value === b.to.value) return d.fail();
  return {
    sentences: [...a.sentences, ...b.sentences],
    question: d.say(
      `Who has more ${thing} now, ${a.person} or ${b.person}?`,
      `Who has more ${thing} at the end, ${a.person} or ${b.person}?`,
      `Now who is ahead, ${a.person} or ${b.person}?`,
    ),
    who: { steps: [a.to.step as number, b.to.step as number], names: [a.person, b.person] },
  };
}

export function ages(d: Draft): Story {
  let known = d.person();
  let to = d.start();
  const sentences = [
    d.told(
      `${known} is ${to.value} years old.`,
      `The age of ${known} is ${to.value} years.`,
      `There is ${known}, who is ${to.value} years old.`,
    ),
  ];
  for (let i = 0; i < d.operations; i++) {
    const next = d.person();
    const { op, by, to: age } = d.change(next, to, ['+', '-']);
    const text =
      op === '+'
        ? d.say(
            `${next} is ${by} years older than ${known}.`,
            `${next} is as old as ${known} and ${by} years more.`,
            `${known} is ${by} years younger than ${next}.`,
          )
        : d.say(
            `${next} is ${by} years younger than ${known}.`,
            `${next} would need ${by} years to be as old as ${known}.`,
            `${known} is ${by} years older than ${next}.`,
          );
    sentences.push({ text, movable: true });
    known = next;
    to = age;
  }
  return {
    sentences,
    question: d.say(
      `How old is ${known}?`,
      `What is the age of ${known}?`,
      `How many years old is ${known}?`,
    ),
    noun: `the age of ${known}`,
  };
}
