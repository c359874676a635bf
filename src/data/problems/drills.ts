/** Training samples without a story: computations under names, and comparisons of results. */
import type { PhiloxStream } from '../../random/philox.js';
import type { StepRecord } from '../../records/record.js';
import { Draft, UNUSABLE } from './draft.js';
import { LEVELS, type Level } from './levels.js';
import type { Operand, PlannedStep } from './problem.js';
import { rightSteps } from './solution.js';
import { NAMES, THINGS } from './words.js';

/** Computations of one drill. */
const DRILLED = 6;

/** Pairs of one drill of comparisons. */
const COMPARED = 4;

/** Names of results that are no person and no thing. */
const OTHER_NAMES = ['together', 'left', 'rest', 'difference', 'each', 'bus'] as const;
const ANSWERS = ['yes', 'no', 'odd', 'even', ...NAMES] as const;

/**
 * Computations without a story, under names to be copied: the numbers are those of a level, the facts those of training. Every
 * other drill is a chain, in which names stand for results: `Ida: 9, Amy: Ida + 4, Bob: Amy × 3`.
 */
export function drill(draw: PhiloxStream, levels: readonly number[]): StepRecord {
  const possible = levels.flatMap((share, i) => (share > 0 ? [LEVELS[i] as Level] : []));
  const isChain = draw.below(2) === 0;
  for (;;) {
    const draft = new Draft(draw, draw.pick(possible), 'train', DRILLED, 0);
    try {
      const asked = isChain ? chain(draft) : computations(draft);
      const steps = rightSteps(draft.plan);
      return { problem: asked.join(', '), steps: steps.map((text) => ({ text, label: 1, kind: 'normal' })) };
    } catch (error) {
      if (error !== UNUSABLE) throw error;
    }
  }
}

function computations(draft: Draft): string[] {
  const { draw, level, plan } = draft;
  return Array.from({ length: DRILLED }, () => {
    const about = draw.below(2) === 0 ? draft.person() : draft.thing();
    if (draw.below(8) === 0) draft.groups(about);
    else draft.change(about, { value: 1 + draw.below(level.maxValue) }, ['+', '-', '×']);
    const { left, op, right } = plan.at(-1) as PlannedStep;
    return `${about}: ${left.value} ${op} ${right.value}`;
  });
}

function chain(draft: Draft): string[] {
  const { draw, level } = draft;
  const names = [draft.person()];
  const values: Operand[] = [{ value: 1 + draw.below(level.maxValue) }];
  const asked = [`${names[0]}: ${values[0]?.value}`];
  while (names.length <= DRILLED) {
    // Mostly the one before, as in stories.
    const from = draw.below(3) === 0 ? draw.below(names.length) : names.length - 1;
    const next = draft.person();
    const { op, by, to } = draft.change(next, values[from] as Operand, ['+', '-', '×']);
    asked.push(`${next}: ${names[from]} ${op} ${by}`);
    names.push(next);
    values.push(to);
  }
  return asked;
}

/**
 * Pairs of results under names, to be copied and compared: `Tom: 19; Tom: 18`, and then `1` where both sides are the same, else `0`. Half of
 * the pairs differ: in the result by a usual slip or by another number, or in the name.
 */
export function comparisons(draw: PhiloxStream): StepRecord {
  const pairs = Array.from({ length: COMPARED }, () => pair(draw));
  return {
    problem: pairs.map((sides) => sides.join('; ')).join('\n'),
    steps: pairs.flatMap(([left, right]) =>
      [`${left}; ${right}`, left === right ? '1' : '0'].map((text) => ({ text, label: 1, kind: 'normal' })),
    ),
  };
}

function pair(draw: PhiloxStream): readonly [string, string] {
  const isSame = draw.below(2) === 0;
  if (draw.below(3) === 0) {
    const word = draw.pick(ANSWERS);
    return [`Answer: ${word}`, `Answer: ${isSame ? word : draw.pick(ANSWERS)}`];
  }
  const result = draw.below([10, 100, 100, 200][draw.below(4)] as number);
  const names = [...NAMES, ...THINGS, ...OTHER_NAMES];
  // As often as lines of a solution are its answer.
  const name = draw.below(4) === 0 ? 'Answer' : draw.pick(names);
  const left = `${name}: ${result}`;
  if (isSame) return [left, left];
  if (draw.below(3) === 0) return [left, `${draw.pick(names)}: ${result}`];
  return [left, `${name}: ${otherResult(result, draw)}`];
}

function otherResult(result: number, draw: PhiloxStream): number {
  const reversed = Number([...String(result)].reverse().join(''));
  const slips = [result + 1, result - 1, result + 10, result - 10, reversed, draw.below(100)];
  return Math.max(0, draw.pick(slips));
}
