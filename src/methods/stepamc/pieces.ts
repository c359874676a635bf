/** The sequences of a mini-batch of questions: each solution with the answers of its questions, and both words after each. */
import type { Dataset } from '../../data/dataset.js';
import type { VerdictTokenizer } from '../../data/verdict.js';
import { grouped } from '../../native/grouped.js';
import type { AnswerRow, BranchedAnswer, VerdictSequence } from '../../sequences/sequence.js';
import type { Piece } from '../../train/policy/objective.js';
import { answeredSequence } from './questions.js';
import type { CreditedQuestion, Question } from './rollout.js';

export interface QuestionPiece extends Piece<Question> {
  readonly questions: readonly CreditedQuestion[];
  /** The rows of both words of each question, after the reason of its first answer. */
  readonly words: readonly {
    readonly positive: readonly AnswerRow[];
    readonly negative: readonly AnswerRow[];
  }[];
}

export function questionPieces(
  questions: readonly CreditedQuestion[],
  {
    sequences,
    tokenizer: { template, tailIds },
  }: {
    readonly sequences: Dataset<VerdictSequence>;
    readonly tokenizer: Pick<VerdictTokenizer, 'template' | 'tailIds'>;
  },
): QuestionPiece[] {
  return [...grouped(questions, ({ item }) => item)].map(([item, own]) => {
    const places = own.map(({ place, answers }) => {
      const reason = answers[0]?.tokens.slice(0, answers[0].reason ?? 0) ?? [];
      const words = [template.positiveIds, template.negativeIds].map((word) => [...reason, ...word]);
      return { place, answers: [...answers.map(({ tokens }) => tokens), ...words] };
    });
    const sequence = answeredSequence(sequences.get(item), places, tailIds);
    const rowsOf = (q: number) => (sequence.answers[q] as readonly BranchedAnswer[]).map(({ rows }) => rows);
    return {
      sequence,
      questions: own,
      answers: own.flatMap((question) => question.answers),
      rows: own.flatMap((_, q) => rowsOf(q).slice(0, -2).flat()),
      words: own.map((_, q) => ({ positive: rowsOf(q).at(-2) ?? [], negative: rowsOf(q).at(-1) ?? [] })),
    };
  });
}
