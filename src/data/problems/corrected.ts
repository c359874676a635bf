/** Solutions in which lines come wrong first: what is wrong is not learned, the mark after it and the right line are. */
import type { PhiloxStream } from '../../random/philox.js';
import type { Step } from '../../records/record.js';
import type { LineForm } from './line.js';
import { judgeSolution } from './oracle.js';
import type { WordProblem } from './problem.js';
import { MISTAKES, writtenSolution } from './solution.js';

/** A line by itself after the wrong ones. */
export const MARK = 'no';

const OF_STEPS = MISTAKES.filter((mistake) => mistake !== 'answer');

/**
 * The right lines, each with probability `rate` after a wrong version of it, what may have been carried on from that, and
 * the mark.
 *
 * @param right all lines of the right solution, or the computations alone
 */
export function correctedSteps(
  problem: Pick<WordProblem, 'problem' | 'plan' | 'ending' | 'answer' | 'part'>,
  right: readonly string[],
  {
    draw,
    rate,
    form,
  }: { readonly draw: PhiloxStream; readonly rate: number; readonly form?: LineForm | undefined },
): Step[] {
  return right.flatMap((text, i): Step[] => {
    const line: Step = { text, label: 1, kind: 'normal' };
    if (draw.uniform() >= rate) return [line];
    let carriedOn = 1;
    while (draw.below(2) === 0) carriedOn++;
    const wrong = wrongLines(problem, i, { draw, form }).slice(0, right.length - i);
    if (wrong.length === 0) return [line];
    return [
      ...wrong.slice(0, carriedOn).map((text): Step => ({ text, label: 0, kind: 'wrong' })),
      { text: MARK, label: null, kind: 'reflection' },
      line,
    ];
  });
}

/** What a solution that goes wrong in line `i` has from there on, as long as it is wrong. */
function wrongLines(
  problem: Parameters<typeof correctedSteps>[0],
  i: number,
  { draw, form = 'named' }: { readonly draw: PhiloxStream; readonly form: LineForm | undefined },
): string[] {
  const steps = problem.plan.map((_, at) => {
    const mistake = at === i ? draw.pick(OF_STEPS) : undefined;
    return { isMisread: false, mistake, way: draw.uniform() };
  });
  const answer = i < problem.plan.length ? {} : { wrongAnswer: draw.uniform() };
  const lines = writtenSolution(problem, { steps, form, ...answer });
  if (lines === undefined) return [];
  const rest = judgeSolution(problem, lines).lines.slice(i);
  const end = rest.findIndex(({ right }) => right);
  return rest.slice(0, end < 0 ? rest.length : end).map(({ text }) => text);
}
