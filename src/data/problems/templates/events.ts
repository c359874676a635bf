/** Something grows and shrinks: the same quantity throughout. */
import type { Draft, Sentence, Story } from '../draft.js';
import type { Operation } from '../facts.js';
import type { Operand } from '../problem.js';

const ALL: readonly Operation[] = ['+', '-', '×'];
const UP_AND_DOWN: readonly Operation[] = ['+', '-'];

/** `count` changes of a person's amount. */
export function changes(
  d: Draft,
  {
    person,
    thing,
    from,
    count,
    ops = ALL,
  }: {
    readonly person: string;
    readonly thing: string;
    readonly from: Operand;
    readonly count: number;
    readonly ops?: readonly Operation[];
  },
): { readonly sentences: Sentence[]; readonly to: Operand } {
  const other = d.person();
  const sentences: Sentence[] = [];
  let to = from;
  for (let i = 0; i < count; i++) {
    const { op, by, to: next } = d.change(person, to, ops);
    to = next;
    if (op === '+')
      sentences.push(
        d.told(
          `${person} finds ${by} more.`,
          `${other} gives ${by} to ${person}.`,
          `Then ${person} gets ${by} from ${other}.`,
        ),
      );
    else if (op === '-')
      sentences.push(
        d.told(
          `${person} loses ${by}.`,
          `${person} gives ${by} to ${other}.`,
          `Then ${other} takes ${by} from ${person}.`,
        ),
      );
    else
      sentences.push(
        d.told(
          `Now ${person} has ${by} times as many.`,
          `The number of ${thing} becomes ${by} times as large.`,
          `Then ${person} has ${by} times as many as before.`,
        ),
      );
  }
  return { sentences, to };
}

export function hasAtFirst(d: Draft, person: string, count: number, thing: string): Sentence {
  return d.told(
    `${person} has ${count} ${thing}.`,
    `At first ${person} has ${count} ${thing}.`,
    `There are ${count} ${thing} with ${person}.`,
  );
}

/** The question about a person's amount at the end. */
export function hasNow(d: Draft, person: string, thing: string): Pick<Story, 'question' | 'noun'> {
  return {
    question: d.say(
      `How many ${thing} does ${person} have now?`,
      `How many ${thing} does ${person} have at the end?`,
      `Now how many ${thing} are there with ${person}?`,
    ),
    noun: `the number of ${thing} of ${person}`,
  };
}

export function events(d: Draft): Story {
  const [person, thing] = [d.person(), d.thing()];
  const from = d.start();
  const opening = hasAtFirst(d, person, from.value, thing);
  const { sentences } = changes(d, { person, thing, from, count: d.operations });
  return { sentences: [opening, ...sentences], ...hasNow(d, person, thing) };
}

/** A story told backwards: the question is about the amount at first. */
export function before(d: Draft): Story {
  const [person, other, thing] = [d.person(), d.person(), d.thing()];
  let to = d.start();
  const sentences = [
    d.told(
      `Now ${person} has ${to.value} ${thing}.`,
      `At the end ${person} has ${to.value} ${thing}.`,
      `There are ${to.value} ${thing} with ${person} now.`,
    ),
  ];
  for (let i = 0; i < d.operations; i++) {
    const { op, by, to: next } = d.change(person, to, UP_AND_DOWN);
    to = next;
    const sentence =
      op === '+'
        ? d.told(
            `Before that ${person} lost ${by}.`,
            `Before that ${person} gave ${by} to ${other}.`,
            `Before that ${other} took ${by} from ${person}.`,
          )
        : d.told(
            `Before that ${person} found ${by}.`,
            `Before that ${other} gave ${by} to ${person}.`,
            `Before that ${person} got ${by} from ${other}.`,
          );
    sentences.push(sentence);
  }
  return {
    sentences,
    question: d.say(
      `How many ${thing} did ${person} have at first?`,
      `How many ${thing} did ${person} have before?`,
      `How many ${thing} were there with ${person} at first?`,
    ),
    noun: `the first number of ${thing} of ${person}`,
  };
}

export function bus(d: Draft): Story {
  let to = d.start();
  const sentences = [
    d.told(
      `There are ${to.value} people on a bus.`,
      `A bus starts with ${to.value} people.`,
      `${to.value} people are on the bus.`,
    ),
  ];
  for (let i = 0; i < d.operations; i++) {
    const { op, by, to: next } = d.change('bus', to, UP_AND_DOWN);
    to = next;
    sentences.push(
      op === '+'
        ? d.told(`${by} people get on.`, `At a stop ${by} get on.`, `Then ${by} more get on.`)
        : d.told(`${by} people get off.`, `At a stop ${by} get off.`, `Then ${by} of them get off.`),
    );
  }
  return {
    sentences,
    question: d.say(
      'How many people are on the bus now?',
      'How many people are on the bus at the end?',
      'Now how many people are there on the bus?',
    ),
    noun: 'the number of people on the bus',
  };
}

/** Shared equally in the end: the last change makes it work out. */
export function sharing(d: Draft): Story {
  if (d.operations < 2) return d.fail();
  const [person, thing] = [d.person(), d.thing()];
  const from = d.start();
  const opening = hasAtFirst(d, person, from.value, thing);
  const { sentences, to } = changes(d, { person, thing, from, count: d.operations - 1, ops: UP_AND_DOWN });
  const shares = [2, 3, 4, 5, 6, 7, 8, 9].filter(
    (k) => to.value % k === 0 && to.value / k > 1 && to.value / k < 10,
  );
  if (shares.length === 0) return d.fail();
  const k = d.draw.pick(shares);
  d.step('each', to, '÷', { value: k });
  const share = d.told(
    `${person} shares them among ${k} children.`,
    `${person} puts them into ${k} ${d.container()}.`,
    `Then ${k} children share them.`,
  );
  return {
    sentences: [opening, ...sentences, share],
    question: d.say(
      `How many ${thing} does each child get?`,
      `How many ${thing} are there in each?`,
      `How many ${thing} are there for each child?`,
    ),
    noun: `the number of ${thing} in each share`,
  };
}
