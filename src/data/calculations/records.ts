/** Explicit calculations in many wordings, each right: what a judge of calculations learns from. */
import { DataError } from '../../files/data-error.js';
import { PhiloxStream, shuffled } from '../../random/philox.js';
import type { StepRecord } from '../../records/record.js';
import { drawCalculation, drawNumber, drawScale, type Scale, written } from './numbers.js';
import {
  answering,
  asking,
  type Cast,
  drawCast,
  repeating,
  STEP_FORMS,
  stepping,
  telling,
} from './sentences.js';
import { drawStyle, type Style, sides } from './style.js';
import { NUMBER_WORDS } from './words.js';

/** Keys are those of section `data.calculations` of a run's configuration. */
export interface CalculationOptions {
  readonly seed: number;
  /** Number of problems, over all parts. */
  readonly samples: number;
  /** Most calculations of a solution. Default 6. */
  readonly steps?: number;
}

/** Domain of the random stream of a problem. */
const DOMAIN = 0x63616c63;

/** Lazily and in order; problem i is the same whatever `samples` is. */
export function* calculationRecords({ seed, samples, steps = 6 }: CalculationOptions): Generator<StepRecord> {
  for (const [key, value] of Object.entries({ seed, samples, steps }))
    if (!Number.isSafeInteger(value) || value < (key === 'steps' ? 1 : 0))
      throw new DataError('option', `data.calculations.${key} is ${value}; expected a whole number`);
  for (let i = 0; i < samples; i++) {
    const record = recordOf(new PhiloxStream(seed, DOMAIN, i), steps);
    yield { ...record, provenance: { file: 'calculations', row: i + 1 } };
  }
}

function recordOf(draw: PhiloxStream, most: number): StepRecord {
  const scale = drawScale(draw);
  const style = drawStyle(draw);
  const cast = drawCast(draw);
  // Most solutions have one form of step; in others each has its own.
  const only = draw.uniform() < 0.5 ? draw.below(STEP_FORMS) : undefined;
  const told = [drawNumber(draw, scale)];
  const results: number[] = [];
  const texts: string[] = [];
  const old = () => {
    const last = results.at(-1);
    if (last !== undefined && draw.uniform() < 0.55) return last;
    return draw.pick(results.length > 0 && draw.uniform() < 0.3 ? results : told);
  };
  const wanted = 1 + draw.below(most);
  const number = (value: number) =>
    written(value, { commas: style.commas, money: style.currency !== 'none' });
  const numbered = draw.uniform() < 0.08;
  while (results.length < wanted) {
    const made = drawCalculation(draw, scale, old);
    if (made === undefined) continue;
    const { calculation } = made;
    told.push(...made.told);
    results.push(calculation.result);
    const { left, right } = sides(calculation, style, draw.pick(cast.things));
    const joint = `${style.equalSpace}${style.equals}${style.equalSpace}`;
    const parts = { left, right, joint, result: number(calculation.result) };
    const text = stepping(draw, cast, only ?? draw.below(STEP_FORMS), parts);
    texts.push(
      numbered ? `${draw.pick(['Step ', ''])}${results.length}${draw.pick([':', '.'])} ${text}` : text,
    );
    if (draw.uniform() < 0.1) texts.push(repeating(draw, cast, number(calculation.result)));
  }
  if (draw.uniform() < 0.4) texts.push(answering(draw, cast, number(results.at(-1) as number)));
  return {
    problem: problemOf(draw, cast, scale, style, told),
    steps: texts.map((text) => ({ text, label: 1, kind: 'normal' })),
  };
}

/** Most problems tell their numbers in order; some tell others too, and a few tell nothing. */
function problemOf(
  draw: PhiloxStream,
  cast: Cast,
  scale: Scale,
  style: Style,
  told: readonly number[],
): string {
  const asked = asking(draw, cast);
  if (draw.uniform() < 0.05) return asked;
  const others = Array.from({ length: draw.uniform() < 0.3 ? 1 + draw.below(2) : 0 }, () =>
    drawNumber(draw, scale),
  );
  const all = [...told, ...others];
  const order = draw.uniform() < 0.3 || others.length > 0 ? shuffled(draw, all) : all;
  const numbers = order.map((value) => numberIn(draw, style, value));
  // Few words, so that more of the tokens are calculations.
  if (draw.uniform() < 0.35) return numbers.map((each) => `${each} ${draw.pick(cast.things)}`).join(', ');
  return [...numbers.map((each) => telling(draw, cast, each)), asked].join(' ');
}

function numberIn(draw: PhiloxStream, { commas, currency }: Style, value: number): string {
  const word = value % 100 === 0 ? NUMBER_WORDS[value / 100] : undefined;
  if (word !== undefined && draw.uniform() < 0.25) return word;
  return written(value, { commas, money: currency !== 'none' });
}
