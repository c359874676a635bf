import { badFile } from '../files/data-error.js';
import { BadRow } from './bad-row.js';
import { checkedText } from './columns.js';
import type { RawRow } from './json-rows.js';

/** Files of problems are kilobytes (AMPS) to hundreds of megabytes (the Mathematics Dataset); a line is a question. */
const MAX_LINE_CHARACTERS = 1 << 20;

/**
 * Rows of the two collections that come as plain text. In AMPS' Mathematica files, a problem follows `Problem:`, and
 * each of its answers follows `Answer:`. The Mathematics Dataset of DeepMind has questions and answers line by line.
 * Both give `question` and `answer`. An answer of several lines in AMPS is a worked solution and goes to `solution`.
 *
 * @throws DataError for text that is neither
 */
export async function* textRows(chunks: AsyncIterable<Buffer>, file: string): AsyncGenerator<RawRow> {
  const lines = linesOf(chunks, file);
  const first = await lines.next();
  if (first.done) return;
  const rest = withFirst(first.value, lines);
  if (first.value.text.trim() === 'Problem:') yield* sections(rest);
  else yield* pairs(rest, file);
}

interface Line {
  readonly text: string;
  readonly line: number;
}

async function* pairs(lines: AsyncIterable<Line>, file: string): AsyncGenerator<RawRow> {
  let question: Line | undefined;
  let row = 0;
  for await (const current of lines) {
    if (question === undefined) question = current;
    else {
      yield { line: question.line, row: ++row, value: { question: question.text, answer: current.text } };
      question = undefined;
    }
  }
  if (question !== undefined)
    throw badFile(
      'the last question has no answer behind it; expected questions and answers line by line, or "Problem:" and "Answer:" before each',
      { file, line: question.line },
    );
}

/** A problem with several answers is as many rows. */
async function* sections(lines: AsyncIterable<Line>): AsyncGenerator<RawRow> {
  let [question, section, row] = ['', '', 0];
  let at = 0;
  const taken = (): RawRow => {
    const place = { line: at, row: ++row };
    try {
      checkedText(question, 'the text behind "Problem:"');
      const given = section.trim();
      return {
        ...place,
        value: { question: question.trim(), [given.includes('\n') ? 'solution' : 'answer']: given },
      };
    } catch (error) {
      if (error instanceof BadRow) return { ...place, bad: error };
      throw error;
    }
  };
  const unanswered = (): RawRow => ({
    ...{ line: at, row: ++row },
    bad: new BadRow('no_answer', 'there is no "Answer:" behind this "Problem:"'),
  });
  let inAnswer = false;
  for await (const { text, line } of lines) {
    const mark = text.trim();
    if (mark !== 'Problem:' && mark !== 'Answer:') {
      section += `${text}\n`;
      continue;
    }
    if (inAnswer) yield taken();
    else if (mark === 'Answer:') question = section;
    else if (at > 0) yield unanswered();
    inAnswer = mark === 'Answer:';
    if (!inAnswer) at = line;
    section = '';
  }
  yield inAnswer ? taken() : unanswered();
}

async function* withFirst(first: Line, rest: AsyncIterable<Line>): AsyncGenerator<Line> {
  yield first;
  yield* rest;
}

/** Lines that are not blank at the beginning and the end of the text. */
async function* linesOf(chunks: AsyncIterable<Buffer>, file: string): AsyncGenerator<Line> {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let [kept, line] = ['', 0];
  let blank: Line[] = [];
  const decoded = (chunk?: Buffer) => {
    try {
      return chunk ? decoder.decode(chunk, { stream: true }) : decoder.decode();
    } catch {
      throw badFile('is not UTF-8 text', { file, line: line + 1 });
    }
  };
  const next = function* (text: string): Generator<Line> {
    const current = { text: text.replace(/\r$/, ''), line: ++line };
    if (current.text.trim() === '') {
      if (line > 1) blank.push(current);
      return;
    }
    yield* blank;
    blank = [];
    yield current;
  };
  for await (const chunk of chunks) {
    const parts = (kept + decoded(chunk)).split('\n');
    kept = parts.pop() as string;
    if (kept.length > MAX_LINE_CHARACTERS)
      throw badFile(`expected lines of at most ${MAX_LINE_CHARACTERS} characters`, {
        file,
        line: line + 1,
      });
    for (const text of parts) yield* next(text);
  }
  kept += decoded();
  if (kept !== '') yield* next(kept);
}
