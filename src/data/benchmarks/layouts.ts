// The layouts of benchmarks: under which columns a row has its problem, its answer and its solution.
import { answersEqual } from '../../answers/equal.js';
import { extractAnswer, isMarked } from '../../answers/extract.js';
import { numberText } from '../../files/exact-json.js';
import { attempt } from '../../native/attempt.js';
import { BadRow } from '../bad-row.js';
import {
  checkedText,
  describeValue,
  has,
  isRow,
  listColumn,
  misfit,
  objectColumn,
  optionalText,
  type Row,
  textColumn,
} from '../columns.js';
import { wordProblemOf } from '../problems/row.js';
import { pythonValue } from '../python-text.js';
import { messagesOf, questionOf } from '../sources/chat.js';
import type { Problem } from './problem.js';

export type LayoutName =
  | 'gsm8k'
  | 'metamath'
  | 'svamp'
  | 'mgsm'
  | 'math'
  | 'aime'
  | 'amps'
  | 'deepmind'
  | 'verl'
  | 'word_problem'
  | 'record'
  | 'plain';

export interface Layout {
  readonly name: LayoutName;
  /** Names of the columns, for the error about an unknown layout. */
  readonly columns: string;
  matches(row: Row): boolean;
  /** @throws BadRow for a row that does not fit */
  read(row: Row): Problem;
}

/** GSM8K: the answer ends the worked solution, behind `####`. */
const gsm8k: Layout = {
  name: 'gsm8k',
  columns: 'question, answer with ####',
  matches: (row) => has(row, 'question') && typeof row.answer === 'string' && row.answer.includes('####'),
  read(row) {
    const solution = textColumn(row, 'answer');
    const mark = solution.lastIndexOf('####');
    if (mark < 0) throw new BadRow('no_answer', "column 'answer' has no #### before its final answer");
    const answer = nonEmpty(solution.slice(mark + 4), "column 'answer' behind ####");
    return { problem: textColumn(row, 'question'), answer, solution };
  },
};

/** MetaMathQA: the solution ends with `The answer is: …`. */
const metamath: Layout = {
  name: 'metamath',
  columns: 'query, response with "The answer is:"',
  matches: (row) =>
    has(row, 'query') && typeof row.response === 'string' && row.response.includes('The answer is:'),
  read(row) {
    const solution = textColumn(row, 'response');
    const mark = solution.lastIndexOf('The answer is:');
    if (mark < 0) throw new BadRow('no_answer', "column 'response' has no 'The answer is:'");
    const answer = nonEmpty(solution.slice(mark + 14), "column 'response' behind 'The answer is:'");
    return { problem: textColumn(row, 'query'), answer, solution };
  },
};

/** SVAMP: a story and its question in two columns; the equation that gives the answer is its solution. */
const svamp: Layout = {
  name: 'svamp',
  columns: 'Body, Question, Answer',
  matches: (row) => has(row, 'Body', 'Question', 'Answer'),
  read(row) {
    const body = textColumn(row, 'Body').trim();
    const question = textColumn(row, 'Question').trim();
    const problem = `${body}${/[.!?,]$/.test(body) ? '' : '.'} ${question}`;
    const answer = answerColumn(row, 'Answer');
    const written = optionalText(row, 'Equation')?.replace(/\.0+(?!\d)/g, '') ?? '';
    const equation = written
      .replace(/\( /g, '(')
      .replace(/ \)/g, ')')
      .replace(/^\((.*)\)$/s, '$1');
    // One of a thousand gives another number.
    const holds = / [-+*/] /.test(equation) && answersEqual(equation, answer).equal;
    const solution = holds ? { solution: `${equation} = ${answer}` } : {};
    return { problem, answer, ...solution, ...identified(row, 'ID') };
  },
};

/** MGSM: the worked solution, of the examples alone, is in words of its language, and its number in a column. */
const mgsm: Layout = {
  name: 'mgsm',
  columns: 'question, answer_number',
  matches: (row) => has(row, 'question', 'answer_number'),
  read(row) {
    const problem = textColumn(row, 'question');
    const answer = answerColumn(row, 'answer_number');
    const solution = optionalText(row, 'answer');
    return { problem, answer, ...(solution === undefined || solution === answer ? {} : { solution }) };
  },
};

/** MATH, whose answer is the last box of the solution, and MATH-500, which has it in a column too. */
const math: Layout = {
  name: 'math',
  columns: 'problem, solution with \\boxed',
  matches: (row) =>
    has(row, 'problem') && typeof row.solution === 'string' && row.solution.includes('\\boxed'),
  read(row) {
    const solution = textColumn(row, 'solution');
    const problem = textColumn(row, 'problem');
    const common = { problem, solution, ...identified(row, 'unique_id', 'id') };
    if (has(row, 'answer')) return { ...common, answer: answerColumn(row, 'answer') };
    const boxed = extractAnswer(solution);
    if (boxed?.method === 'boxed') return { ...common, answer: boxed.answer };
    throw new BadRow('no_answer', "column 'solution' has no \\boxed{…} around its final answer");
  },
};

/** AIME as it is most often published, with capitals. */
const aime: Layout = {
  name: 'aime',
  columns: 'Problem, Answer',
  matches: (row) => has(row, 'Problem', 'Answer'),
  read: (row) => ({
    problem: textColumn(row, 'Problem'),
    answer: answerColumn(row, 'Answer'),
    ...(typeof row.Solution === 'string' && row.Solution.trim() !== '' ? { solution: row.Solution } : {}),
    ...identified(row, 'ID', 'id'),
  }),
};

/** Khan Academy's part of AMPS: the hints are the steps of the solution, the last one has the answer. */
const amps: Layout = {
  name: 'amps',
  columns: 'problem or question, hints',
  matches: (row) =>
    Array.isArray(row.hints) &&
    (has(row, 'problem') || has(row, 'question')) &&
    !['answer', 'gold_answer', 'solution'].some((column) => has(row, column)),
  read(row) {
    const hints = listColumn(row, 'hints').map((hint, i) => checkedText(hint, `hint ${i + 1}`).trim());
    const solution = hints.join('\n\n');
    const answer = extractAnswer(hints.at(-1) ?? '')?.answer;
    if (answer === undefined) throw new BadRow('no_answer', 'the last of the hints has no answer');
    return { problem: textColumn(row, has(row, 'problem') ? 'problem' : 'question'), answer, solution };
  },
};

/** The Mathematics Dataset as the hub's script writes it: texts as Python prints bytes, `b'Solve …\\n'`. */
const deepmind: Layout = {
  name: 'deepmind',
  columns: "question and answer as b'…'",
  matches: (row) =>
    [row.question, row.answer].every((value) => typeof value === 'string' && BYTES.test(value)),
  read: (row) => ({
    problem: unquoted(textColumn(row, 'question')),
    answer: nonEmpty(unquoted(textColumn(row, 'answer')), "column 'answer'"),
  }),
};

const BYTES = /^b(['"])(.*)\1$/s;

function unquoted(text: string): string {
  const escapes: Readonly<Record<string, string>> = { n: '\n', t: '\t', r: '\r' };
  const [, , inside = text] = BYTES.exec(text) ?? [];
  return inside.replace(/\\(.)/g, (_, letter: string) => escapes[letter] ?? letter).trim();
}

/** verl's parquet files: messages, and the answer that a rule compares with. */
const verl: Layout = {
  name: 'verl',
  columns: 'prompt (messages), reward_model.ground_truth',
  matches: (row) =>
    Array.isArray(row.prompt) && isRow(row.reward_model) && has(row.reward_model, 'ground_truth'),
  read(row) {
    const extra = isRow(row.extra_info) ? row.extra_info : {};
    const solution = optionalText(extra, 'answer');
    const messages = listColumn(row, 'prompt').filter((message) => isRow(message));
    const asked = messages.findLast(({ role }) => role === 'user');
    if (asked === undefined) throw new BadRow('no_problem', "column 'prompt' has no message of a user");
    // The question alone is taken: the message also asks for a form of the answer.
    const problem = has(extra, 'question')
      ? textColumn(extra, 'question', "'question' of extra_info")
      : textColumn(asked, 'content', "'content' of the message");
    const answer = oneOf(answerColumn(objectColumn(row, 'reward_model'), 'ground_truth'));
    return { problem, answer, ...(solution === undefined ? {} : { solution }) };
  },
};

/** The answer in a text that is a list of it alone, in JSON or as Python prints it; Skywork-OR1 has such. */
function oneOf(text: string): string {
  if (!/^\[\s*['"]/.test(text)) return text;
  const list = attempt(() => JSON.parse(text) as unknown) ?? pythonValue(text);
  if (!Array.isArray(list) || !list.every((each) => typeof each === 'string')) return text;
  if (list.length > 1)
    throw new BadRow(
      'several_answers',
      `'ground_truth' of reward_model is a list of ${list.length} texts; expected one answer`,
    );
  return nonEmpty(list[0] as string, "'ground_truth' of reward_model");
}

/** Rows of `steptrain data problems`, whose plan lets an oracle judge every step. */
const wordProblem: Layout = {
  name: 'word_problem',
  columns: 'problem, answer, plan, ending',
  matches: (row) => has(row, 'problem', 'answer', 'plan', 'ending', 'template'),
  read(row) {
    const generated = wordProblemOf(row);
    const { problem, answer, level, template, wording } = generated;
    return { problem, answer, id: `level ${level}, ${template} ${wording + 1}`, generated };
  },
};

/** The project's own records of solutions. */
const record: Layout = {
  name: 'record',
  columns: 'problem, gold_answer',
  matches: (row) => has(row, 'problem', 'gold_answer'),
  read: (row) => ({
    problem: textColumn(row, 'problem'),
    answer: answerColumn(row, 'gold_answer'),
    ...(typeof row.gold_solution === 'string' ? { solution: row.gold_solution } : {}),
  }),
};

const PROBLEM_COLUMNS = ['problem', 'question', 'prompt'];

/** Everything else that has a problem, as text or as messages, and an answer or a solution that marks its answer. */
const plain: Layout = {
  name: 'plain',
  columns: `${PROBLEM_COLUMNS.join(' or ')}, answer or a solution with its answer marked`,
  matches: (row) =>
    PROBLEM_COLUMNS.some((column) => has(row, column)) && (has(row, 'answer') || has(row, 'solution')),
  read(row) {
    const column = PROBLEM_COLUMNS.find((name) => has(row, name)) ?? (PROBLEM_COLUMNS[0] as string);
    const value = row[column];
    const problem = Array.isArray(value)
      ? questionOf(messagesOf(value, `column '${column}'`))
      : textColumn(row, column);
    if (has(row, 'answer') || !has(row, 'solution'))
      return columnsLayout({ problem: 'problem', answer: 'answer' }).read({ ...row, problem });
    const solution = textColumn(row, 'solution');
    const marked = extractAnswer(solution);
    if (marked && isMarked(marked.method))
      return { problem, answer: marked.answer, solution, ...identified(row, 'unique_id', 'id') };
    throw new BadRow(
      'no_answer',
      "column 'solution' marks no final answer (####, \\boxed or \"answer is\"), and there is no column 'answer'",
    );
  },
};

/** Layouts in the order of recognition: the more particular come first. */
export const LAYOUTS: Readonly<Record<LayoutName, Layout>> = {
  gsm8k,
  metamath,
  svamp,
  mgsm,
  math,
  aime,
  amps,
  deepmind,
  verl,
  word_problem: wordProblem,
  record,
  plain,
};

export const LAYOUT_NAMES = Object.keys(LAYOUTS) as readonly LayoutName[];

/** The layout whose columns the row has. */
export function detectLayout(row: Row): Layout | undefined {
  return Object.values(LAYOUTS).find((layout) => layout.matches(row));
}

/** Rows whose columns the user names. An answer may stand at the end of a solution, behind `####` or in a box. */
export function columnsLayout(columns: { readonly problem: string; readonly answer: string }): Layout {
  return {
    name: 'plain',
    columns: `${columns.problem}, ${columns.answer}`,
    matches: () => true,
    read(row) {
      const problem = textColumn(row, columns.problem);
      const answer = answerColumn(row, columns.answer);
      const marked = extractAnswer(answer);
      const solution =
        typeof row.solution === 'string' && row.solution.trim() !== '' ? row.solution : undefined;
      const common = { problem, ...identified(row, 'unique_id', 'id') };
      if (marked?.method === 'boxed' || marked?.method === 'marker')
        return { ...common, answer: marked.answer, solution: solution ?? answer };
      return { ...common, answer, ...(solution === undefined ? {} : { solution }) };
    },
  };
}

/** A text or a number: `142.0` of a file is the number 142. */
function answerColumn(row: Row, key: string): string {
  const value = row[key];
  // Objects are the answers of a server (OpenAI's `choices`).
  const choices = [row.choices, row.options].find(
    (list) => Array.isArray(list) && list.length > 0 && !list.some(isRow),
  );
  if (choices !== undefined && /^\d+$/.test(`${value}`.trim()))
    throw new BadRow(
      'place_of_choice',
      `column '${key}' is ${describeValue(value)} beside a list of choices, and may be the place of one; write the choices into the problem, and the answer as its letter or its text`,
    );
  const number = numberText(row, key);
  if (number !== undefined) return number;
  if (value === undefined || value === null)
    throw new BadRow('missing_column', `column '${key}' is missing; expected a text or a number`);
  if (typeof value !== 'string') throw misfit(`column '${key}' holds`, value, 'a text or a number');
  if ('question_type' in row && /^(?:proof|notfound)$/.test(value))
    throw new BadRow(
      'no_answer',
      `column '${key}' says ${value}, as NuminaMath 1.5 does where there is no answer`,
    );
  return nonEmpty(textColumn(row, key), `column '${key}'`);
}

function nonEmpty(text: string, where: string): string {
  if (text.trim() === '') throw new BadRow('no_answer', `${where} is empty; expected the final answer`);
  return text.trim();
}

function identified(row: Row, ...columns: readonly string[]): { readonly id?: string } {
  for (const column of columns) {
    const id = ['string', 'number', 'bigint'].includes(typeof row[column])
      ? optionalText(row, column)
      : undefined;
    if (id !== undefined) return { id };
  }
  return {};
}
