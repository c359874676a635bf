/** Training samples without a story: computations under names. */
import type { PhiloxStream } from '../../random/philox.js';
import type { StepRecord } from '../../records/record.js';
import { Draft, UNUSABLE } from './draft.js';
import { LEVELS, type Level } from './levels.js';
import type { Operand, PlannedStep } from './problem.js';
import { rightSteps } from './solution.js';

/** Computations of one drill. */
const DRILLED = 6;

/**
 * A drill: computations without a story, under names to be copied, with the numbers of a level and facts of training.
 * Every other drill is a chain, in which names stand for results: `Ida: 9, Amy: Ida + 4, Bob: Amy × 3`.
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
