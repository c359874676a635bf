// Lower bounds on real data: cases from the tests of other graders, and gold solutions against their answers.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { answersEqual } from '../../src/answers/equal.js';
import { extractAnswer } from '../../src/answers/extract.js';
import { sharedPath } from '../shared.js';

type Row = Readonly<Record<string, unknown>>;

/** The rows of a file; undefined if it is absent. */
function rowsOf(path: string): readonly Row[] | undefined {
  const file = sharedPath(`data/${path}`);
  if (file === undefined) {
    console.warn(`skipped: there is no ${path} in the shared data`);
    return undefined;
  }
  return readFileSync(file, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
}

const answerOf = (text: string) => extractAnswer(text)?.answer ?? '';
const shareOf = (rights: readonly boolean[]) => rights.filter(Boolean).length / rights.length;

describe('on the cases of other graders', () => {
  const cases = rowsOf('answer-equivalence.jsonl')?.map((row) => {
    const [got, expected] = [String(row.got), String(row.expected)];
    const isWhole = row.kind === 'equal';
    const { equal } = isWhole ? answersEqual(got, expected) : answersEqual(answerOf(got), answerOf(expected));
    const options = (row.options ?? {}) as Row;
    return { id: row.id, kind: row.kind, expected: row.equal, found: equal, language: options.language };
  });

  it.skipIf(cases === undefined)('at least 95 % of the English ones get the same result', () => {
    const rows = cases!.filter(
      ({ kind, language }) => kind !== 'completion-vs-solution reward' && language === undefined,
    );
    expect(rows.length).toBe(166);
    expect(shareOf(rows.map(({ expected, found }) => expected === found))).toBeGreaterThanOrEqual(0.95);
  });

  it.skipIf(cases === undefined)('every falsely accepted one is in docs/concepts/answers.md', () => {
    const accepted = cases!.filter(({ expected, found }) => !expected && found).map(({ id }) => id);
    expect(accepted).toEqual([28, 181, 309]);
  });

  it.skipIf(cases === undefined)('completions get the reward that their grader gives', () => {
    const rows = cases!.filter(({ kind }) => kind === 'completion-vs-solution reward');
    expect(rows.map(({ found }) => found)).toEqual(rows.map(({ expected }) => expected));
  });
});

describe('gold solutions graded against their own answers', () => {
  const sources = {
    'gsm8k/test.jsonl': (row: Row) => [row.answer, String(row.answer).split('####')[1]],
    'math/math500.jsonl': (row: Row) => [row.solution, row.answer],
    'svamp/test.jsonl': (row: Row) => [row.Equation, row.Answer],
  };
  for (const [path, pairOf] of Object.entries(sources)) {
    const rows = rowsOf(path);
    it.skipIf(rows === undefined)(`at least 99 % of ${path} are right`, () => {
      const rights = rows!.map((row) => {
        const [solution, answer] = pairOf(row).map(String);
        return answersEqual(answerOf(solution!), answer!).equal;
      });
      expect(shareOf(rights)).toBeGreaterThanOrEqual(0.99);
    });
  }
});
