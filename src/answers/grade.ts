// Predictions graded against expected answers, one by one and counted.
import { checkText } from '../native/errors.js';
import { choiceOf, letterOf } from './choice.js';
import { answers, type Equality, type EqualityMethod, type EqualityOptions } from './equal.js';
import {
  announced,
  type ExtractionMethod,
  type ExtractionOptions,
  extractAnswer,
  isMarked,
} from './extract.js';
import { normalise, plainForm } from './normalise.js';

export interface GradeOptions extends EqualityOptions, ExtractionOptions {
  /** Whether the prediction came to its end. One that was cut off gives no answer, whatever number it holds. Default true. */
  readonly ended?: boolean | undefined;
}

export interface Grade {
  readonly correct: boolean;
  /** The answer taken from the prediction; null where it gives none. */
  readonly got: string | null;
  /** The answer taken from the reference. */
  readonly expected: string;
  /** Place where `got` was found, and the comparison; null without an answer. */
  readonly found: ExtractionMethod | null;
  readonly method: EqualityMethod | null;
}

/** Grades a prediction or whole solution against an answer, or against a solution that marks its own with a box or `####`. */
export function grade(prediction: string, reference: string, options: GradeOptions = {}): Grade {
  checkText('grade: the prediction', prediction);
  checkText('grade: the reference', reference);
  const marked = extractAnswer(reference);
  const expected = marked && isMarked(marked.method) ? marked.answer : reference.trim();
  const choice = choiceOf(plainForm(normalise(expected)));
  const isChoice = options.expect === 'choice' || (choice !== undefined && (choice.marked || !choice.rest));
  const reading: ExtractionOptions = isChoice ? { ...options, expect: 'choice' } : options;
  const answer = options.ended === false ? undefined : extractAnswer(prediction, reading);
  if (answer === undefined) return { correct: false, got: null, expected, found: null, method: null };
  const letter = letterOf(expected);
  // A small letter alone may be a variable: then only what is marked as a choice, or one of the first five, is one.
  const chooses = isChoice || /^(?:\W*\p{L}\s?[).:]|[A-E]$)/u.test(answer.answer);
  if (letter !== undefined && chooses && letterOf(answer.answer) === letter)
    return { correct: true, got: answer.answer, expected, found: answer.method, method: 'choice' };
  const { equal, method }: Equality = answers(answer.answer, expected, options);
  if (equal || answer.method !== 'phrase')
    return { correct: equal, got: answer.answer, expected, found: answer.method, method };
  // `Team 3` and `January 5, 2021` are more than their last value.
  const said = announced(prediction, reading) ?? '';
  return isSame(said, expected)
    ? { correct: true, got: said, expected, found: answer.method, method: 'text' }
    : { correct: false, got: answer.answer, expected, found: answer.method, method };
}

/** Whether two texts have the same words and signs. */
function isSame(a: string, b: string): boolean {
  const plain = (text: string) =>
    text
      .toLowerCase()
      .replace(/\s+/g, ' ')
      .replace(/[.\s]+$/, '')
      .trim();
  return plain(a) === plain(b);
}

/**
 * Whether an expected answer is a worked text that marks no answer of its own, in sentences: no prediction equals it. Ten
 * words of two letters or more, six in more than one sentence, or thirty characters with a full stop of Chinese or Japanese.
 */
export function isUnmarkedText(answer: string): boolean {
  const words = answer.split(/\s+/).filter((word) => /\p{L}{2}/u.test(word));
  const areSentences =
    words.length >= (/[.!?]\s+\S/.test(answer) ? 6 : 10) || (answer.length >= 30 && /[。！？]/.test(answer));
  return areSentences && !isMarked(extractAnswer(answer)?.method);
}

export interface GradeSummary {
  readonly rows: number;
  readonly correct: number;
  /** Predictions that give no answer. */
  readonly unanswered: number;
  /** correct / rows, 0 for no rows. */
  readonly accuracy: number;
  /** Rows and correct ones by where the answer was found. */
  readonly found: Readonly<
    Partial<Record<ExtractionMethod, { readonly rows: number; readonly correct: number }>>
  >;
  /** Correct rows by how they were compared. */
  readonly methods: Readonly<Partial<Record<EqualityMethod, number>>>;
}

export function summarizeGrades(grades: Iterable<Grade>): GradeSummary {
  const found: Partial<Record<ExtractionMethod, { rows: number; correct: number }>> = {};
  const methods: Partial<Record<EqualityMethod, number>> = {};
  let [rows, correct, unanswered] = [0, 0, 0];
  for (const result of grades) {
    rows++;
    if (result.correct) correct++;
    if (result.found === null || result.method === null) {
      unanswered++;
      continue;
    }
    const place = found[result.found] ?? { rows: 0, correct: 0 };
    found[result.found] = { rows: place.rows + 1, correct: place.correct + (result.correct ? 1 : 0) };
    if (!result.correct) continue;
    methods[result.method] = (methods[result.method] ?? 0) + 1;
  }
  return { rows, correct, unanswered, accuracy: rows === 0 ? 0 : correct / rows, found, methods };
}
