import type { Argv } from 'yargs';
import type { ExtractionMethod } from '../answers/extract.js';
import type { Grade, GradeSummary } from '../answers/grade.js';
import { numberText } from '../files/exact-json.js';
import { plural } from '../native/shown.js';
import { type ArgumentsOf, argument, command, flag, number, oneOf, text } from './line/command.js';
import { UsageError } from './line/error.js';
import { checkNewFile } from './line/usage.js';

type GradeArguments = ArgumentsOf<typeof options>;

const options = (argv: Argv) =>
  argv
    .positional('predictions', {
      ...argument,
      describe:
        'File of rows (.jsonl, .json, .csv, also .gz, .parquet), or - for JSON lines on standard input',
    })
    .option('answers', {
      ...text,
      describe: 'File with the expected answers, row by row [default: the same file]',
    })
    .option('prediction', { ...text, default: 'prediction', describe: 'Column of answers or solutions' })
    .option('answer', { ...text, default: 'answer', describe: 'Column of expected answers or solutions' })
    .option('output', { ...text, describe: 'New .jsonl file for the result of every row' })
    .option('show', {
      ...oneOf(['none', 'wrong', 'all'], 'none'),
      describe: 'Rows to print before the table',
    })
    .option('expect', {
      ...oneOf(['any', 'choice'], 'any'),
      describe: 'choice: where nothing marks the answer, a letter goes before a number',
    })
    .option('units', {
      ...oneOf(['optional', 'required'], 'optional'),
      describe: 'Whether one side may leave its unit out',
    })
    .option('digits', {
      ...number,
      default: 6,
      describe: 'Significant digits from which a decimal stands for what it is rounded from',
    })
    .option('in-reasoning', {
      ...flag,
      describe: 'The prompts opened reasoning (<think>): a row that never ends it gives no answer',
    })
    .option('json', { ...flag, describe: 'Print the counts as JSON' })
    .example('$0 grade out.jsonl', 'columns prediction and answer')
    .example('$0 grade out.jsonl --prediction completion --show wrong', 'look at what is wrong')
    .example('$0 grade out.jsonl --answers gsm8k/test.jsonl', 'gold solutions behind ####')
    .example('$0 grade math500.jsonl --prediction solution', 'gold solutions against their answers')
    .example('generate | $0 grade - --output graded.jsonl', 'from a pipe, every result kept');

export const gradeCommand = command({
  command: 'grade <predictions>',
  describe: 'Grade answers or whole solutions against expected answers',
  builder: options,
  handler: async (given) => {
    // yargs reads the - of standard input as empty text.
    const args = { ...given, predictions: given.predictions === '' ? '-' : given.predictions };
    if (!(args.digits >= 1)) throw new UsageError('--digits expects a number of at least 1');
    checkNewFile(args.output, '.jsonl', '--output');
    const { isUnmarkedText, summarizeGrades } = await import('../answers/grade.js');
    const grades = await gradeRows(args);
    if (args.output !== undefined) {
      const { writeFileAtomically } = await import('../files/atomic-file.js');
      const lines = grades.map((result, row) =>
        Buffer.from(`${JSON.stringify({ row: row + 1, ...result })}\n`),
      );
      await writeFileAtomically(args.output, lines);
    }
    for (const [row, result] of grades.entries())
      if (args.show === 'all' || (args.show === 'wrong' && !result.correct))
        console.log(rowLine(row + 1, result));
    const summary = summarizeGrades(grades);
    const { unmarkedWarning } = await import('../data/benchmarks/unasked.js');
    const unmarked = grades.filter(({ expected }) => isUnmarkedText(expected)).length;
    for (const warning of unmarkedWarning(unmarked)) console.error(`Warning: ${warning}`);
    console.log(args.json ? JSON.stringify(summary, null, 2) : await gradeTable(summary));
  },
});

async function gradeRows(args: GradeArguments): Promise<Grade[]> {
  const { grade } = await import('../answers/grade.js');
  const { isCutOff } = await import('../data/solution-rows.js');
  const { BadRow } = await import('../data/bad-row.js');
  const isEnded = ({ row, where }: Cell) => {
    try {
      return !isCutOff(row);
    } catch (error) {
      throw error instanceof BadRow ? new UsageError(`${where}: ${error.message}`) : error;
    }
  };
  const predictions = await columnOf(args.predictions, args.prediction, '--prediction');
  const answersFile = args.answers ?? args.predictions;
  const given =
    args.answers === undefined ? undefined : await columnOf(args.answers, args.answer, '--answer');
  const answers = given
    ? given.map(({ value }) => value)
    : predictions.map(({ row, where }) => cell(row, where, args.answer, '--answer'));
  if (answers.length !== predictions.length)
    throw new UsageError(
      `${args.predictions} has ${plural(predictions.length, 'row')} and ${answersFile} ${answers.length}; both must list the same problems in the same order`,
    );
  if (given) refuseOtherOrder(predictions, given);
  if (predictions.length === 0)
    throw new UsageError(`${args.predictions} has no rows; expected one JSON object a line`);
  return predictions.map((cell, i) =>
    grade(cell.value, answers[i]!, {
      ...args,
      ...{ inReasoning: args['in-reasoning'], ended: isEnded(cell) },
    }),
  );
}

/** @throws UsageError where both files have a column with the same distinct values in another order */
function refuseOtherOrder(predictions: readonly Cell[], answers: readonly Cell[]): void {
  const textOf = (value: unknown) =>
    typeof value === 'string' || typeof value === 'number' ? String(value).trim() : undefined;
  for (const column of Object.keys(predictions[0]?.row ?? {})) {
    const [own, others] = [predictions, answers].map((cells) => cells.map(({ row }) => textOf(row[column])));
    if (!own || !others || own.includes(undefined) || new Set(own).size < own.length) continue;
    const at = own.findIndex((value, i) => value !== others[i]);
    const known = new Set(own);
    if (at < 0 || new Set(others).size < own.length || others.some((value) => !known.has(value))) continue;
    const [one, other] = [predictions[at] as Cell, answers[at] as Cell];
    throw new UsageError(
      `${one.where} has ${column} ${JSON.stringify(own[at])} and ${other.where} ${JSON.stringify(others[at])}; both must list the same problems in the same order`,
    );
  }
}

interface Cell {
  readonly value: string;
  readonly row: Readonly<Record<string, unknown>>;
  /** `out.jsonl, line 3`. */
  readonly where: string;
}

async function columnOf(path: string, column: string, option: string): Promise<Cell[]> {
  const { objectRows, STANDARD_INPUT } = await import('../data/rows.js');
  const rows = path === '-' ? objectRows(STANDARD_INPUT, process.stdin) : objectRows(path);
  const cells: Cell[] = [];
  for await (const { row, where } of rows)
    cells.push({ value: cell(row, where, column, option), row, where });
  return cells;
}

/** A value as text. A missing column is a wrong option; null is a missing answer, and no expected one. */
function cell(row: Cell['row'], where: string, column: string, option: string): string {
  const value = row[column];
  const isExpected = option !== '--prediction';
  if (typeof value === 'string' && !(isExpected && value.trim() === '')) return value;
  const number = numberText(row, column);
  if (number !== undefined) return number;
  if (value === null && !isExpected) return '';
  if (value === null || typeof value === 'string')
    throw new UsageError(
      `${where}: column '${column}' holds no expected answer, with which every prediction would be wrong; leave such rows out`,
    );
  const found =
    value === undefined ? 'it is not there' : `it holds ${Array.isArray(value) ? 'a list' : typeof value}`;
  throw new UsageError(
    `${where}: column '${column}' should hold text or a number, and ${found}; the columns are ${Object.keys(row).join(', ')}; name one with ${option}`,
  );
}

function rowLine(row: number, { correct, got, expected, found, method }: Grade): string {
  const said = got === null ? 'no answer' : `${shown(got)} (${found})`;
  return `${row}  ${correct ? 'right' : 'wrong'}  ${said}  expected ${shown(expected)}${method === null ? '' : `  ${method}`}`;
}

function shown(answer: string): string {
  const line = answer.replaceAll(/\s+/g, ' ');
  return line.length > 60 ? `${line.slice(0, 59)}…` : line;
}

async function gradeTable({ rows, correct, unanswered, found }: GradeSummary): Promise<string> {
  const { formatTable } = await import('../terminal/table.js');
  const { percent } = await import('../eval/statistics/percent.js');
  const share = (part: number, of: number) => (of === 0 ? '-' : percent(part / of));
  const lines = [
    ['answers', 'rows', 'right', '%'],
    ...Object.entries(found).map(([place, { rows: n, correct: right }]) => [
      place,
      String(n),
      String(right),
      share(right, n),
    ]),
    ...(unanswered > 0 ? [['none', String(unanswered), '0', share(0, unanswered)]] : []),
    ['all', String(rows), String(correct), share(correct, rows)],
  ];
  const table = formatTable(lines, { boxed: process.stdout.isTTY === true });
  const places = Object.keys(found).map((place) => `${place}: ${PLACES[place as ExtractionMethod]}`);
  return places.length === 0 ? table : `${table}\nanswers were found ${places.join('; ')}`;
}

/** Descriptions of where an answer was found. */
const PLACES: Readonly<Record<ExtractionMethod, string>> = {
  boxed: 'in the last \\boxed{…}',
  marker: 'behind the last ####',
  phrase: 'behind "answer is", "Answer:" or "final answer"',
  whole: 'as the whole text',
  math: 'in the last formula',
  number: 'as the last number',
  choice: 'as the last letter of a choice',
};
