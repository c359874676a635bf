/** The end of a story: a question for the number that it leads to, or for something coarser. */
import { type Draft, type Story, UNUSABLE } from './draft.js';
import { isFactOf } from './facts.js';
import type { Ending } from './problem.js';

export type CoarseQuestion = 'parity' | 'limit' | 'remainder';

export interface Question {
  readonly text: string;
  readonly ending: Ending;
}

/** The question of the story itself. */
export function plainQuestion(d: Draft, { question, who }: Story): Question {
  const ending: Ending = who ? { kind: 'who', ...who } : { kind: 'number', step: d.plan.length - 1 };
  return { text: question, ending };
}

/** Largest distance of a limit from the number that it is compared with. */
const NEAR = 12;

export function coarseQuestion(d: Draft, noun: string, kind: CoarseQuestion): Question {
  const step = d.plan.length - 1;
  const value = d.plan[step]?.result ?? d.fail();
  switch (kind) {
    case 'parity':
      return {
        text: d.say(`Is ${noun} even or odd?`, `Is ${noun} an odd number?`, `Is ${noun} an even number?`),
        ending: {
          kind,
          step,
          ...([
            { even: 'even', odd: 'odd' },
            { even: 'no', odd: 'yes' },
            { even: 'yes', odd: 'no' },
          ][d.wording] as { even: string; odd: string }),
        },
      };
    case 'limit': {
      const limit = d.between([Math.max(1, value - NEAR), value + NEAR]);
      const relation = (['>', '<', '≥'] as const)[d.wording] as '>' | '<' | '≥';
      return {
        text: d.say(
          `Is ${noun} more than ${limit}?`,
          `Is ${noun} less than ${limit}?`,
          `Is ${noun} at least ${limit}?`,
        ),
        ending: { kind, step, relation, limit },
      };
    }
    case 'remainder': {
      // Only values of two digits are divided by 3 and 4: one digit alone does not give that remainder.
      const divisors = [2, 5, 10, ...(value < 100 ? [3, 4] : [])].filter(
        (k) => k <= value && isFactOf(d.part, { left: value, op: 'mod', right: k }),
      );
      if (divisors.length === 0) throw UNUSABLE;
      const k = d.draw.pick(divisors);
      d.step('rest', { value, step }, 'mod', { value: k });
      return {
        text: d.say(
          `What is the rest when ${noun} is divided by ${k}?`,
          `What is the rest of ${noun} divided by ${k}?`,
          `When ${noun} is divided by ${k}, what is the rest?`,
        ),
        ending: { kind, step: d.plan.length - 1 },
      };
    }
  }
}
