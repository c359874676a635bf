/** Word problems as the records that everything learns from. */
import { badOption } from '../../files/data-error.js';
import { PhiloxStream } from '../../random/philox.js';
import type { Step, StepRecord } from '../../records/record.js';
import type { Part } from '../split.js';
import { workedAfterAttempt } from './attempts.js';
import { comparison } from './comparisons.js';
import { drill } from './drills.js';
import { checkLevels, drafter, type WordProblemOptions } from './generate.js';
import { errorName, judgeSolution } from './oracle.js';
import type { WordProblem } from './problem.js';
import { reasonOf } from './reasons.js';
import {
  drawManner,
  type MistakeOptions,
  rightSolution,
  USUAL_MISTAKES,
  writtenSolution,
} from './solution.js';
import { isMadeWithCalculator, turnRecord } from './turns.js';

/** Keys are those of section `data.word_problems` of a run's configuration. */
export interface WordProblemRecordOptions
  extends MistakeOptions,
    Pick<WordProblemOptions, 'seed' | 'samples' | 'levels' | 'templates'> {
  /** Shares of training, validation and test. Default [8, 1, 1]. */
  readonly split?: readonly [number, number, number];
  /**
   * Share of drills among the training samples of the first half: computations under names, without a story, before there are
   * enough stories to learn the arithmetic and the names from. Default 0.
   */
  readonly drill_rate?: number;
  /**
   * Share of the training samples that show an attempt and then a worked solution; with such samples, mistakes occur in
   * attempts alone. Default 0.
   */
  readonly attempt_rate?: number;
  /** Share of the training samples that compare two results, without a story. Default 0. */
  readonly comparison_rate?: number;
  /** Solutions as turns of an agent with a calculator, which makes no slip, in place of lines. Default false. */
  readonly turns?: boolean;
}

/** Domains of the random streams: the problem's part and numbers, and the mistakes of its solution. */
const PROBLEM = 0x77707274;
const SOLUTION = 0x77736f6c;
/** Domain for the choice of samples other than a plain story. */
const KIND = 0x776b696e;

/** Max steps of a plan. */
const MAX_STEPS = 8;

/** Problems with a solution each, and the part that they belong to; the oracle gives the labels. Lazily and in order. */
export function* wordProblemRecords(
  options: WordProblemRecordOptions,
): Generator<{ readonly part: Part; readonly record: StepRecord; readonly problem?: WordProblem }> {
  const {
    seed,
    samples,
    split = [8, 1, 1],
    levels = [1, 1, 1],
    templates = 'seen',
    drill_rate: drills = 0,
    attempt_rate: attempts = 0,
    comparison_rate: compared = 0,
  } = options;
  checkLevels(levels);
  checkRates(options);
  const draft = drafter({ levels, templates });
  for (let i = 0; i < samples; i++) {
    const draw = new PhiloxStream(seed, PROBLEM, i);
    const part = partAt(draw.uniform(), split);
    const provenance = { file: 'word_problems', row: i + 1 };
    if (part === 'train' && i < samples / 2 && draw.uniform() < drills) {
      yield { part, record: { ...drill(draw, levels), provenance } };
      continue;
    }
    const kind = part === 'train' && attempts + compared > 0 ? new PhiloxStream(seed, KIND, i) : undefined;
    const share = kind?.uniform() ?? 1;
    if (kind && share < compared) {
      yield { part, record: { ...comparison(draft(draw, part), kind), provenance } };
      continue;
    }
    const isAttempt = share < compared + attempts;
    // Mistakes are drawn before the problem, so that those that rarely fit the facts of training are not rarer in it.
    const mistakes =
      attempts > 0 && !isAttempt
        ? { ...options, error_rate: 0, misread_rate: 0 }
        : options.turns
          ? { ...options, mistakes: (options.mistakes ?? USUAL_MISTAKES).filter(isMadeWithCalculator) }
          : options;
    const manner = drawManner(new PhiloxStream(seed, SOLUTION, i), mistakes, MAX_STEPS);
    let lines: string[] | undefined;
    const problem = draft(draw, part, (drafted) => {
      lines = writtenSolution(drafted, manner);
      return lines !== undefined;
    });
    const id = `level ${problem.level}, ${problem.template} ${problem.wording + 1}`;
    const record =
      kind && isAttempt
        ? workedAfterAttempt(problem, lines ?? [], kind)
        : (options.turns ? turnRecord : solutionRecord)(problem, lines ?? []);
    yield { part, problem, record: { ...record, provenance: { ...provenance, id } } };
  }
}

/** A solution as a record: a step for each line, labelled by the oracle. */
export function solutionRecord(problem: WordProblem, lines: readonly string[]): StepRecord {
  const judged = judgeSolution(problem, lines);
  return {
    problem: problem.problem,
    gold_solution: rightSolution(problem).join('\n'),
    gold_answer: problem.answer,
    steps: judged.lines.map((line, i): Step => {
      const error = errorName(line);
      return {
        text: line.text,
        label: line.right ? 1 : 0,
        rationale: reasonOf(problem, judged.lines, i),
        ...(error === undefined ? {} : { error }),
        kind: 'normal',
      };
    }),
    outcome: judged.isAnswerRight ? 1 : 0,
  };
}

function partAt(at: number, [train, validation, test]: readonly [number, number, number]): Part {
  const place = at * (train + validation + test);
  if (place < train) return 'train';
  return place < train + validation || test === 0 ? 'validation' : 'test';
}

function checkRates({
  error_rate = 0,
  misread_rate = 0,
  unnamed_rate = 0,
  drill_rate = 0,
  attempt_rate = 0,
  comparison_rate = 0,
  mistakes,
  turns = false,
}: WordProblemRecordOptions): void {
  const rates = { error_rate, misread_rate, unnamed_rate, drill_rate, attempt_rate, comparison_rate };
  for (const [key, rate] of Object.entries(rates)) {
    if (rate >= 0 && rate <= 1) continue;
    throw badOption(`data.word_problems.${key} is ${rate}; expected a probability from 0 to 1`);
  }
  const other = Object.entries({ unnamed_rate, drill_rate, attempt_rate, comparison_rate }).find(
    ([, rate]) => turns && rate > 0,
  );
  if (other)
    throw badOption(
      `data.word_problems.${other[0]} is about solutions in lines, and data.source "word_problem_turns" gives turns; remove it`,
    );
  if (turns && error_rate > 0 && !(mistakes ?? USUAL_MISTAKES).some(isMadeWithCalculator))
    throw badOption(
      'data.word_problems.mistakes names slips alone, and the calculator of data.source "word_problem_turns" makes none; name others',
    );
  if (attempt_rate + comparison_rate > 1)
    throw badOption(
      'data.word_problems: attempt_rate and comparison_rate are shares of the training samples and together at most 1',
    );
}
