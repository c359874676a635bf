/** Word problems as the records that everything learns from. */
import { badOption } from '../../files/data-error.js';
import { PhiloxStream } from '../../random/philox.js';
import type { Step, StepRecord } from '../../records/record.js';
import type { Part } from '../split.js';
import { Draft, UNUSABLE } from './draft.js';
import { checkLevels, drafter, type WordProblemOptions } from './generate.js';
import { LEVELS, type Level } from './levels.js';
import { ANSWER, errorName, type JudgedLine, judgeSolution } from './oracle.js';
import type { Operand, PlannedStep, WordProblem } from './problem.js';
import { drawManner, type MistakeOptions, rightSolution, rightSteps, writtenSolution } from './solution.js';

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
}

/** Domains of the random streams: the problem's part and numbers, and the mistakes of its solution. */
const PROBLEM = 0x77707274;
const SOLUTION = 0x77736f6c;

/** Of a plan. */
const MOST_STEPS = 8;

/** Computations of one drill. */
const DRILLED = 6;

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
    // What goes wrong is settled first, so that what fits badly with the facts of training is not rarer in it.
    const manner = drawManner(new PhiloxStream(seed, SOLUTION, i), options, MOST_STEPS);
    let lines: string[] | undefined;
    const problem = draft(draw, part, (drafted) => {
      lines = writtenSolution(drafted, manner);
      return lines !== undefined;
    });
    const id = `level ${problem.level}, ${problem.template} ${problem.wording + 1}`;
    const record = solutionRecord(problem, lines ?? []);
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

/**
 * The line that belongs in the place of line `i`, and beside its result the one that is judged: `Tom: 12 + 7 = 19, 18`. The
 * verdict then asks for a comparison of neighbours. Where it cannot be told what a line was meant to be, the next step that no
 * line before it has got right.
 */
function reasonOf(problem: WordProblem, lines: readonly JudgedLine[], i: number): string {
  const { text, step } = lines[i] as JudgedLine;
  const own = rightSolution(problem);
  const done = new Set(lines.slice(0, i).flatMap((line) => (line.right ? (line.step ?? []) : [])));
  const next = problem.plan.findIndex((_, s) => !done.has(s));
  const meant = ANSWER.test(text)
    ? problem.plan.length
    : (step ?? (next < 0 ? problem.plan.length - 1 : next));
  return `${own[meant]}, ${text.slice(Math.max(text.lastIndexOf('='), text.lastIndexOf(':')) + 1).trim()}`;
}

/**
 * Computations without a story, under names to be copied: the numbers are those of a level, the facts those of training. Every
 * other drill is a chain, in which names stand for results: `Ida: 9, Amy: Ida + 4, Bob: Amy × 3`.
 */
function drill(draw: PhiloxStream, levels: readonly number[]): StepRecord {
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
}: WordProblemRecordOptions): void {
  const rates = { error_rate, misread_rate, unnamed_rate, drill_rate };
  for (const [key, rate] of Object.entries(rates)) {
    if (rate >= 0 && rate <= 1) continue;
    throw badOption(`data.word_problems.${key} is ${rate}; expected a probability from 0 to 1`);
  }
}
