import { badOption } from '../files/data-error.js';
import { PhiloxStream } from '../random/philox.js';
import type { Step, StepRecord } from '../records/record.js';

/**
 * Step-labelled arithmetic, generated from a seed without a download. A problem is a start value and a chain of
 * additions and subtractions, `7;+5;-3`; each step is one line, `7+5=12` then `12-3=9`. A wrong step has a wrong result,
 * and the steps after it continue from that result. The characters used are the digits and `;+-=`. Keys are those of
 * section `data.arithmetic` of a run's configuration.
 */
export interface ArithmeticOptions {
  readonly seed: number;
  /** Number of problems. */
  readonly samples: number;
  /** Index of the first problem: problem i is the same whatever `first` and `samples` are. Default 0. */
  readonly first?: number;
  /** Operations per problem. Default 4. */
  readonly steps?: number;
  /** Max operand and max start value. Default 20. */
  readonly max_operand?: number;
  /** Max value, wrong results included; the min is 0. Default 99, so that no value has three digits. */
  readonly max_value?: number;
  /** Probability that a step is wrong. Default 0: correct solutions, for pretraining; 0.5 gives balanced verdicts. */
  readonly error_rate?: number;
  /**
   * The label of a step that continues from a wrong value: judged by its own arithmetic, or always incorrect.
   * Default `own`.
   */
  readonly carried_error?: 'own' | 'incorrect';
}

/** Errors a person makes: off by one, two or three, and a lost or added carry. */
const SLIPS = [-10, -3, -2, -1, 1, 2, 3, 10];

/** Domain of the random stream: separates these draws from other uses of the same seed. */
const DOMAIN = 0x61726974;

/** The problems of {@link ArithmeticOptions}, lazily and in order. */
export function* arithmeticRecords(options: ArithmeticOptions): Generator<StepRecord> {
  const settings = checked(options);
  for (let i = 0; i < options.samples; i++) yield problemAt(settings, settings.first + i);
}

type Settings = Required<ArithmeticOptions>;

function problemAt(settings: Settings, index: number): StepRecord {
  const draw = new PhiloxStream(settings.seed, DOMAIN, index);
  const start = draw.below(settings.max_operand + 1);
  const changes: number[] = [];
  for (let value = start; changes.length < settings.steps; value += changes.at(-1) ?? 0) {
    changes.push(drawChange(draw, value, settings));
  }
  const steps: Step[] = [];
  let value = start;
  for (const [i, change] of changes.entries()) {
    const right = value + change;
    const slip =
      draw.uniform() < settings.error_rate
        ? drawSlip(draw, right, changes.slice(i + 1), settings.max_value)
        : 0;
    const carried = value !== valueBefore(start, changes, i);
    const isWrong = slip !== 0 || (carried && settings.carried_error === 'incorrect');
    steps.push({ text: `${value}${signed(change)}=${right + slip}`, label: isWrong ? 0 : 1, kind: 'normal' });
    value = right + slip;
  }
  const answer = valueBefore(start, changes, changes.length);
  return {
    problem: [String(start), ...changes.map(signed)].join(';'),
    gold_answer: String(answer),
    steps,
    outcome: value === answer ? 1 : 0,
    provenance: { file: 'arithmetic', row: index + 1 },
  };
}

/** An addition or a subtraction, equally likely if both keep the value in range. */
function drawChange(draw: PhiloxStream, value: number, { max_operand, max_value }: Settings): number {
  const maxAdded = Math.min(max_operand, max_value - value);
  const maxSubtracted = Math.min(max_operand, value);
  const adds = maxSubtracted === 0 || (maxAdded > 0 && draw.below(2) === 0);
  return adds ? 1 + draw.below(maxAdded) : -1 - draw.below(maxSubtracted);
}

/** An error that keeps this result and all later ones in range; 0, a right step, if there is none. */
function drawSlip(draw: PhiloxStream, result: number, later: readonly number[], maxValue: number): number {
  let low = result;
  let high = result;
  for (let i = 0, value = result; i < later.length; i++) {
    value += later[i] as number;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const possible = SLIPS.filter((slip) => low + slip >= 0 && high + slip <= maxValue);
  return possible.length === 0 ? 0 : draw.pick(possible);
}

function valueBefore(start: number, changes: readonly number[], index: number): number {
  return changes.slice(0, index).reduce((sum, change) => sum + change, start);
}

function signed(change: number): string {
  return change < 0 ? String(change) : `+${change}`;
}

function checked(options: ArithmeticOptions): Settings {
  const settings: Settings = {
    first: 0,
    steps: 4,
    max_operand: 20,
    max_value: 99,
    error_rate: 0,
    carried_error: 'own',
    ...options,
  };
  const least = { first: 0, samples: 0, seed: 0, steps: 1, max_operand: 1, max_value: settings.max_operand };
  for (const key of Object.keys(least) as (keyof typeof least)[])
    if (!Number.isSafeInteger(settings[key]) || settings[key] < least[key])
      throw badOption(
        `data.arithmetic.${key} is ${settings[key]}; expected a whole number of at least ${least[key]}`,
      );
  if (!(settings.error_rate >= 0 && settings.error_rate <= 1)) {
    throw badOption(
      `data.arithmetic.error_rate is ${settings.error_rate}; expected a probability from 0 to 1`,
    );
  }
  return settings;
}
