// steptrain data plant, and steptrain label --reference.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { StepRecord } from '../../../src/records/record.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';
import { cli } from '../run-cli.js';

const NAMES = ['Ann', 'Bob', 'Cid', 'Dan', 'Eva', 'Flo', 'Gus', 'Hal', 'Ida', 'Jim', 'Kim', 'Lea'];
const rows = NAMES.map((name, i) => ({
  // No two are near each other in their wording.
  question: `${name} has ${i + 20}. ${Array.from({ length: 12 }, (_, j) => `${name.repeat((j % 3) + 1)}${'ly'.repeat(j)}`).join(' ')} and ${i + 45}?`,
  answer: `${name} had ${i + 20} + ${i + 45} = <<${i + 20}+${i + 45}=${2 * i + 65}>>${2 * i + 65} pens.\nThen ${2 * i + 65} * 2 = <<${2 * i + 65}*2=${4 * i + 130}>>${4 * i + 130} are left.\n#### ${4 * i + 130}`,
}));
const write = (path: string, all: readonly unknown[]) =>
  writeFileSync(path, all.map((row) => `${JSON.stringify(row)}\n`).join(''));
const read = (path: string) =>
  readFileSync(path, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as StepRecord);

it('plants errors in all problems but those of the test', async () => {
  const folder = temporaryDirectory();
  const [from, apart, to] = ['gsm8k.jsonl', 'test.jsonl', 'planted.jsonl'].map((name) =>
    join(folder, name),
  ) as [string, string, string];
  write(from, [...rows, rows[0]]);
  write(
    apart,
    rows.slice(0, 3).map(({ question }) => ({ problem: question.toUpperCase(), steps: ['a'], label: -1 })),
  );
  const { code, stdout } = await cli(
    'data',
    'plant',
    from,
    to,
    '--apart',
    apart,
    '--wrong',
    '1',
    '--kinds',
    'slip=1,operand=3',
  );
  expect([code, stdout]).toEqual([0, expect.stringContaining('9 solutions, 9 with an error: ')]);
  expect(stdout).toContain(`3 problems left out that are also in ${apart}`);
  expect(stdout).toMatch(/\d+ labelled steps, [\d.]+ % wrong/);
  const found = read(to);
  expect(found.map(({ problem }) => problem).sort()).toEqual(rows.slice(3).map(({ question }) => question));
  const kinds = new Set(found.flatMap(({ steps }) => steps.flatMap(({ error }) => error ?? [])));
  expect([...kinds].sort()).toEqual(['operand', 'slip']);
});

it.each([
  [['--kinds', 'slipp'], 'there is no kind slipp; expected some of slip, operand'],
  [['--kinds', 'slip=0'], 'the share of slip is 0; expected a number above 0'],
  [['--wrong', '2'], '--wrong expects a share from 0 to 1, found 2'],
  [['--max-samples', '0'], '--max-samples expects a whole number of at least 1, found 0'],
])('refuses %j', async (options, sentence) => {
  const folder = temporaryDirectory();
  write(join(folder, 'gsm8k.jsonl'), rows);
  const { code, stderr } = await cli(
    'data',
    'plant',
    join(folder, 'gsm8k.jsonl'),
    join(folder, 'to.jsonl'),
    ...options,
  );
  expect([code, stderr]).toEqual([1, expect.stringContaining(sentence)]);
});

it('refuses problems without worked solutions', async () => {
  const folder = temporaryDirectory();
  write(join(folder, 'plain.jsonl'), [{ problem: 'How many?', answer: '3' }]);
  const { stderr } = await cli('data', 'plant', join(folder, 'plain.jsonl'), join(folder, 'to.jsonl'));
  expect(stderr).toContain('expected problems with worked solutions of several lines');
});

it('labels solutions by the first line that differs from a worked one', async () => {
  const folder = temporaryDirectory();
  write(join(folder, 'gsm8k.jsonl'), rows);
  write(join(folder, 'own.jsonl'), [
    { problem: rows[0]?.question, solution: '20 + 45 = 65\n65 * 2 = 130\nThe answer is 130' },
    { problem: rows[1]?.question, solution: '21 + 46 = 67\n67 * 3 = 201\nThe answer is 201' },
  ]);
  const label = (file: string, to: string) =>
    cli(
      'label',
      join(folder, file),
      '--reference',
      join(folder, 'gsm8k.jsonl'),
      '--output',
      join(folder, to),
    );
  const { code, stderr } = await label('own.jsonl', 'labels');
  expect([code, stderr]).toEqual([
    0,
    expect.stringContaining('judged by the worked solutions of their problems'),
  ]);
  expect(
    read(join(folder, 'labels', 'labels.jsonl')).map(({ steps }) => steps.map((step) => step.label)),
  ).toEqual([
    [1, 1, 1],
    [1, 0, null],
  ]);
  write(join(folder, 'other.jsonl'), [{ problem: 'Another one?', solution: '1 + 1 = 2\nThe answer is 2' }]);
  expect((await label('other.jsonl', 'none')).stderr).toContain('has no worked solution of this problem');
});

it('labels by the worked solution of that problem alone, not of one with another number raised, and by no two answers', async () => {
  const folder = temporaryDirectory();
  const solved = (question: string, answer: string) => ({ question, answer: `Work.\n#### ${answer}` });
  const own = join(folder, 'own.jsonl');
  write(own, [
    { problem: 'What is 3² + 1?', solution: '3 * 3 = 9\n9 + 1 = 10\nThe answer is 10' },
    { problem: 'What is 32 + 1?', solution: '32 + 1 = 33\nThe answer is 33' },
  ]);
  const label = async (name: string, ...problems: object[]) => {
    write(join(folder, `${name}.jsonl`), problems);
    const to = join(folder, name);
    return cli('label', own, '--reference', join(folder, `${name}.jsonl`), '--output', to);
  };
  const both = [solved('What is 3² + 1?', '10'), solved('What is 32 + 1?', '33')];
  expect((await label('both', ...both)).code).toBe(0);
  expect(
    read(join(folder, 'both', 'labels.jsonl')).map(({ steps }) => steps.map((step) => step.label)),
  ).toEqual([
    [1, 1, 1],
    [1, 1],
  ]);
  const { code, stderr } = await label('twice', ...both, solved('What is 32 + 1?', '35'));
  expect([code, stderr]).toEqual([
    1,
    expect.stringContaining(
      'the problem "What is 32 + 1?" stands there with the answer "33" and with "35"; leave one',
    ),
  ]);
});
