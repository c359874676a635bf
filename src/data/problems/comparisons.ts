/** Comparisons of results, which no solution teaches but a judge that reasons needs. */
import type { PhiloxStream } from '../../random/philox.js';
import type { StepRecord } from '../../records/record.js';
import type { WordProblem } from './problem.js';
import { resultOf } from './reasons.js';
import { rightSolution } from './solution.js';
import { NAMES, THINGS } from './words.js';

/** Max lines before a result. */
const MAX_LINES = 3;

/** Share of comparisons that have a result alone on their left. */
const SHORT = 0.4;

/** Names of results that are no person and no thing. */
const OTHER_NAMES = ['together', 'left', 'rest', 'difference', 'each', 'bus'] as const;
const ANSWERS = ['yes', 'no', 'odd', 'even', ...NAMES] as const;

/**
 * Lines of a right solution without their story, a name with a result, and then `1` if both are those of the last line, else `0`:
 * `Tom: 12 + 7 = 19; Tom: 18`, `0`. A sample has one comparison and nothing else to learn, since among other tokens it is
 * hardly ever learned. Half of them differ: in the result by a usual slip or by another number of these lines, or in the name.
 */
export function comparison(problem: WordProblem, draw: PhiloxStream): StepRecord {
  const solution = rightSolution(problem);
  const count = 1 + draw.below(Math.min(MAX_LINES, solution.length));
  const first = draw.below(2) === 0 ? 0 : draw.below(solution.length - count + 1);
  const lines = solution.slice(first, first + count);
  const right = resultOf(lines.at(-1) as string);
  const isSame = draw.below(2) === 0;
  const beside = isSame ? right : otherThan(right, lines, draw);
  const left = draw.uniform() < SHORT ? right : lines.join(', ');
  return {
    problem: `${left}; ${beside}`,
    steps: [{ text: isSame ? '1' : '0', label: 1, kind: 'normal' }],
  };
}

function otherThan(right: string, lines: readonly string[], draw: PhiloxStream): string {
  const [name = '', result = ''] = right.split(': ');
  const told = lines.map((line) => resultOf(line).split(': '));
  const other = (choices: readonly string[], usual: () => string, unlike: string) => {
    const own = choices.filter((choice) => choice !== unlike);
    if (own.length > 0 && draw.below(2) === 0) return draw.pick(own);
    for (;;) {
      const drawn = usual();
      if (drawn !== unlike) return drawn;
    }
  };
  if (name !== 'Answer' && draw.below(3) === 0) {
    const names = told.map(([of = '']) => of);
    return `${other(names, () => draw.pick([...NAMES, ...THINGS, ...OTHER_NAMES]), name)}: ${result}`;
  }
  const isNumber = /^\d+$/.test(result);
  const usual = () => (isNumber ? slipped(Number(result), draw) : draw.pick(ANSWERS));
  const results = told.map(([, of = '']) => of).filter((of) => /^\d+$/.test(of) === isNumber);
  return `${name}: ${other(results, usual, result)}`;
}

function slipped(result: number, draw: PhiloxStream): string {
  const reversed = Number([...String(result)].reverse().join(''));
  const slips = [result + 1, result - 1, result + 10, result - 10, reversed, draw.below(100)];
  return String(Math.max(0, draw.pick(slips)));
}
