/**
 * Solutions with one planted error each. Worked solutions are right in every step, and what models get wrong is seldom a slip: so a
 * step is made wrong in one of the ways of `PLANTED_KINDS`, and the lines after it go on from its value, exactly.
 */
import { equals, isZero, type Rational } from '../../answers/rational.js';
import { PhiloxStream, shuffled } from '../../random/philox.js';
import type { Step, StepRecord } from '../../records/record.js';
import type { Problem } from '../benchmarks/problem.js';
import { type Equation, equationsIn } from '../equations/equations.js';
import { exactValue, numbersIn, numberValue, partsOf } from '../equations/expression.js';
import { type Changed, carried } from './carry.js';
import { PLANTED_KINDS, type PlantedKind, slips, WRONG_EXPRESSIONS, written } from './kinds.js';

export interface PlantOptions {
  readonly seed: number;
  /** Share of the solutions that get an error. Default 0.6: then about a quarter of the labelled steps are wrong. */
  readonly wrong?: number;
  /** Relative frequency of each kind, where it fits. Default: all alike. */
  readonly kinds?: Readonly<Partial<Record<PlantedKind, number>>>;
}

/** Domain of the random streams, by the number of the problem. */
const DOMAIN = 0x706c6e74;

/** Enough for the few places of a solution. */
const MAX_TRIES = 24;

interface Planted {
  readonly lines: readonly string[];
  /** The first wrong one. */
  readonly place: number;
}

/**
 * The solution of a problem as a record, with or without an error. Steps before the error are right, the step with it is wrong and has
 * its kind as `error`, and later ones have no label. Undefined of a problem without a solution of two lines, and where no kind fits.
 *
 * @param index the number of the problem: keys the random numbers
 */
export function plantedRecord(
  problem: Problem,
  index: number,
  { seed, wrong = 0.6, kinds = {} }: PlantOptions,
): StepRecord | undefined {
  const draw = new PhiloxStream(seed, DOMAIN, index);
  const lines = worked(problem.solution ?? '');
  if (lines.length < 2) return undefined;
  const common = { problem: problem.problem, gold_answer: problem.answer };
  if (draw.uniform() >= wrong) {
    const steps = lines.map((line): Step => ({ text: equationsIn(line).text, label: 1, kind: 'normal' }));
    return { ...common, steps, outcome: 1 };
  }
  const weights = Object.keys(kinds).length > 0 ? kinds : undefined;
  const left = new Map(PLANTED_KINDS.map((kind) => [kind, weights ? (weights[kind] ?? 0) : 1]));
  for (let kind = weighted(left, draw); kind !== undefined; kind = weighted(left, draw)) {
    left.delete(kind);
    const found = planted(problem.problem, lines, kind, draw);
    if (!found) continue;
    const error = kind;
    const steps = found.lines.map((text, i): Step => {
      if (i === found.place) return { text, label: 0, error, kind: 'normal' };
      return { text, label: i < found.place ? 1 : null, kind: 'normal' };
    });
    return { ...common, steps };
  }
  return undefined;
}

/** The lines of a worked solution, with their notes; without the one that only repeats the answer. */
function worked(solution: string): string[] {
  const lines = solution.split('\n').map((line) => line.trim());
  return lines.filter((line) => line !== '' && !/^(?:####|A:|The answer is:)/.test(line));
}

function planted(
  problem: string,
  lines: readonly string[],
  kind: PlantedKind,
  draw: PhiloxStream,
): Planted | undefined {
  const places = lines.flatMap((line, place) => {
    const { equations } = equationsIn(line);
    // A line with several equations is passed over, since its reader cannot tell which one is meant.
    const [equation] = equations;
    return equations.length === 1 && equation?.holds ? [{ place, equation }] : [];
  });
  for (const { place, equation } of shuffled(draw, places)) {
    const { value } = equation.result;
    // A value that is also something else cannot be followed through the lines.
    if (numbersIn(problem).some((number) => equals(number.value, value))) continue;
    if (places.some((other) => other.place !== place && equals(other.equation.result.value, value))) continue;
    const found =
      kind === 'skipped'
        ? withoutLine(lines, place, equation, draw)
        : withWrongLine(problem, lines, place, equation, kind, draw);
    if (found) return found;
  }
  return undefined;
}

function withWrongLine(
  problem: string,
  lines: readonly string[],
  place: number,
  equation: Equation,
  kind: Exclude<PlantedKind, 'skipped'>,
  draw: PhiloxStream,
): Planted | undefined {
  const line = equationsIn(lines[place] as string).text;
  const { at, expression, result, value } = equation;
  const known = lines
    .slice(0, place)
    .flatMap((before) => equationsIn(before).equations.map((each) => each.result.value));
  // Mentions of the result before or behind the equation are changed to the wrong one too.
  const around = (part: string, wrong: string) => carried(part, [{ from: result.value, to: wrong }])?.text;
  const tries =
    kind === 'slip'
      ? slips(line.slice(result.at, result.end).replace(/%$/, ''), draw).map((wrong) => ({
          expression,
          wrong,
        }))
      : at === undefined
        ? []
        : WRONG_EXPRESSIONS[kind]({ problem, line, expression, result, known, draw }).flatMap((other) => {
            const found = exactValue(partsOf(other));
            const wrong = found && !isZero(found) ? written(found) : undefined;
            return wrong === undefined ? [] : [{ expression: other, wrong }];
          });
  for (const { expression: other, wrong } of shuffled(draw, tries).slice(0, MAX_TRIES)) {
    if (equals(numberValue(wrong), result.value) || equals(numberValue(wrong), value)) continue;
    const before = around(line.slice(0, at ?? result.at), wrong);
    const behind = around(line.slice(result.end), wrong);
    if (before === undefined || behind === undefined) continue;
    const computed = at === undefined ? '' : other + line.slice(at + expression.length, result.at);
    const changed = [{ from: result.value, to: wrong }];
    return goneOn(lines, place, before + computed + wrong + behind, changed);
  }
  return undefined;
}

/** The solution from the wrong line on, as far as the lines come to numbers that somebody would write. */
function goneOn(lines: readonly string[], place: number, line: string, from: readonly Changed[]): Planted {
  const out = [...lines.slice(0, place).map((each) => equationsIn(each).text), line];
  let changed = from;
  for (const each of lines.slice(place + 1)) {
    const next = carried(each, changed);
    if (!next) break;
    out.push(next.text);
    changed = next.changed;
  }
  return { lines: out, place };
}

/** A line left out: the first later one that needs its result has one of its numbers instead. */
function withoutLine(
  lines: readonly string[],
  place: number,
  { expression, result }: Equation,
  draw: PhiloxStream,
): Planted | undefined {
  const numbers = partsOf(expression).flatMap((part) => (part.kind === 'number' ? [part] : []));
  const usable = numbers.filter(({ value }) => isUsable(value, result.value));
  for (const part of shuffled(draw, usable)) {
    const changed = [{ from: result.value, to: expression.slice(part.at, part.end) }];
    const first = lines.findIndex((line, i) => i > place && carried(line, changed)?.isChanged);
    if (first < 0) continue;
    const wrong = carried(lines[first] as string, changed);
    // The error must be in a computation; a changed name of a quantity alone is none.
    if (!wrong || wrong.changed.length === changed.length) continue;
    const left = lines.filter((_, i) => i !== place);
    return goneOn(left, first - 1, wrong.text, wrong.changed);
  }
  return undefined;
}

const isUsable = (value: Rational, instead: Rational) =>
  !equals(value, instead) && written(value) !== undefined;

function weighted(left: ReadonlyMap<PlantedKind, number>, draw: PhiloxStream): PlantedKind | undefined {
  const total = [...left.values()].reduce((sum, weight) => sum + weight, 0);
  let at = draw.uniform() * total;
  for (const [kind, weight] of left) {
    if (weight > 0 && at < weight) return kind;
    at -= weight;
  }
  return undefined;
}
