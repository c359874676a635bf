import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatSequence } from '../../src/cli/data/preview.js';
import { dataStats } from '../../src/cli/data/stats.js';
import { completeRunConfig } from '../../src/methods/config.js';
import type { StepRecord } from '../../src/records/record.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { segmentTokenizer } from '../../src/tokenizer/segments.js';
import { load } from '../data/data-file.js';
import { sharedPath } from '../shared.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { cli } from './run-cli.js';

describe('a list of CSV files with weights, by the command line', () => {
  const file = (folder: string, name: string, sign: string, right: boolean) => {
    const path = join(folder, name);
    const rows = Array.from(
      { length: 40 },
      (_, i) => `${i};${sign}1,"[""${i}${sign}1=${i + 1}""]",[${right}]`,
    );
    writeFileSync(path, ['prompt,completions,labels', ...rows, ''].join('\n'));
    return path;
  };
  const stats = (train: string) =>
    cli(
      'data',
      'stats',
      'quickstart_sft',
      '--set',
      'data.source=auto',
      '--set',
      'data.split=[1,0,0]',
      '--set',
      `data.train=${train}`,
    );

  it('has each solution as often as its weight says', async () => {
    const folder = temporaryDirectory();
    const [right, wrong] = [file(folder, 'right.csv', '+', true), file(folder, 'wrong.csv', '-', false)];
    const counts = async (train: string) => {
      const { code, stdout, stderr } = await stats(train);
      expect(code, stderr).toBe(0);
      return ['right', 'wrong'].map((name) => Number(new RegExp(`^${name} +(\\d+)`, 'm').exec(stdout)?.[1]));
    };
    expect(await counts(`[${right}, ${wrong}]`)).toEqual([40, 40]);
    expect(await counts(`[{path: ${right}, weight: 3}, ${wrong}]`)).toEqual([120, 40]);
    const [, few] = await counts(`[${right}, {path: ${wrong}, weight: 0.3}]`);
    expect(few).toBeGreaterThan(4);
    expect(few).toBeLessThan(24);
  });

  it.each([
    [
      '{path: x.csv, weight: 0}',
      /data\.train\.0\.weight expects a number above 0 and of at most 1000, found the number 0/,
    ],
    [
      '{path: x.csv, weight: 1e9}',
      /data\.train\.0\.weight expects a number above 0 and of at most 1000, found/,
    ],
    [
      '{path: x.csv, weight: many}',
      /data\.train\.0\.weight expects a number above 0 and of at most 1000, found the text "many"/,
    ],
    ['{path: 3}', /data\.train\.0\.path expects text, found the number 3/],
    ['{path: x.csv, wieght: 2}', /unknown key "wieght" in data\.train\.0/],
  ])('refuses %s in a sentence', async (item, sentence) => {
    const { code, stderr } = await stats(`[${item}]`);
    expect(code).toBe(1);
    expect(stderr).toMatch(sentence);
  });
});

describe('steptrain data preview', () => {
  it('shows text, ids, spans and loss mask side by side', async () => {
    const { code, stdout } = await cli(
      'data',
      'preview',
      'stepamc_arithmetic',
      '--count',
      '1',
      '--set',
      'data.arithmetic.samples=50',
    );
    expect(code).toBe(0);
    const lines = stdout.split('\n');
    expect(lines[0]).toMatch(/^train 1: step 1 is (right|wrong), \d+ tokens, 1 learned$/);
    const verdict = lines.findIndex((line) => line.startsWith('  verdict 1'));
    expect(lines.slice(verdict + 1)).toEqual(
      lines[0]!.includes('right')
        ? ['     text 1', '      ids 49', '  learned 1']
        : ['     text 0', '      ids 48', '  learned 1'],
    );
    expect(lines.filter((line) => /^ {2}(prompt|step 1) {2}\[\d+, \d+\)$/.test(line))).toHaveLength(3);
  });

  it('shows the labels of a reward model where they are read, and no words', async () => {
    const settings = ['--set', 'data.word_problems.samples=50'];
    const { stdout } = await cli('data', 'preview', 'quickstart_prm', '--count', '1', ...settings);
    const [note, , head, ...lines] = stdout.split('\n');
    expect(note).toMatch(/^The tokenizer stores the last digit/);
    expect(head).toMatch(/^train 1: solution of [23] steps, \d+ tokens, [23] with a label$/);
    const labels = lines.filter((line) => line.startsWith('    label ')).map((line) => line.slice(10));
    const cells = labels.flatMap((line) => line.split(/ +/));
    expect(cells.filter((cell) => cell !== '.')).toHaveLength(Number(/(\d) with a label/.exec(head!)![1]));
    // The line break that ends a step has its label, and nothing else.
    for (const [at, line] of labels.entries())
      if (/[01]$/.test(line)) expect(lines[lines.indexOf(`    label ${line}`) - 2]).toMatch(/⏎$/);
      else expect(at).toBeLessThan(labels.length - 1);
    expect(stdout).not.toMatch(/verdict|learned/);
  });

  it('shows the loss mask of pretraining', async () => {
    const { stdout } = await cli(
      'data',
      'preview',
      'pretrain_arithmetic',
      '--count',
      '1',
      '--set',
      'data.arithmetic.samples=50',
    );
    expect(stdout).toMatch(/^train 1: solution of 4 steps, \d+ tokens, \d+ learned/);
  });

  it('shows every token within the width, for any text', () => {
    const tokenizer = byteTokenizer();
    const tokenize = segmentTokenizer(tokenizer);
    fc.assert(
      fc.property(
        fc.string({ unit: 'binary', maxLength: 40 }),
        fc.integer({ min: 30, max: 80 }),
        (text, width) => {
          const sequence = tokenize([
            { text, role: 'prompt', train: false },
            { text: 'yes', role: 'verdict', step: 0, label: 1, train: true },
          ]);
          const lines = formatSequence(sequence, tokenizer, width);
          const row = (title: string) =>
            lines
              .filter((line) => line.startsWith(`${title.padStart(9)} `))
              .flatMap((line) => line.slice(10).trim().split(/ +/));
          expect(row('ids').map(Number)).toEqual([...sequence.ids]);
          expect(row('learned').map(Number)).toEqual([...sequence.lossMask]);
          for (const line of lines) expect(line.length).toBeLessThanOrEqual(width + 2);
        },
      ),
    );
  });
});

describe('steptrain data convert', () => {
  const row = JSON.stringify({ prompt: 'P?', completions: ['a', 'b'], labels: [true, false] });

  it('writes records that are read back equal, zipped or not', async () => {
    const folder = temporaryDirectory();
    const from = join(folder, 'rows.jsonl');
    writeFileSync(from, `${row}\n${row}\n`);
    const { records } = await load(from);
    for (const name of ['out.jsonl', 'out.jsonl.gz']) {
      const to = join(folder, name);
      const { code, stdout } = await cli('data', 'convert', from, to);
      expect(code).toBe(0);
      expect(stdout).toBe(`${from}: 2 rows, 2 solutions\nwrote ${to}`);
      const back = (await load(to, { source: 'record' })).records;
      const content = ({ problem, steps }: StepRecord) => ({ problem, steps });
      expect(back.map(content)).toEqual(records.map(content));
    }
  });

  it('stops at a bad row and writes nothing, or skips and counts it', async () => {
    const folder = temporaryDirectory();
    const from = join(folder, 'rows.jsonl');
    const to = join(folder, 'out.jsonl.gz');
    writeFileSync(from, `${row}\n{"prompt": "P"}\n${row}\n`);
    const stopped = await cli('data', 'convert', from, to);
    expect(stopped.code).toBe(1);
    expect(stopped.stderr).toContain(`${from}, line 2: column 'completions' is missing; expected a list`);
    expect(readdirSync(folder)).toEqual(['rows.jsonl']);
    const { code, stdout } = await cli('data', 'convert', from, to, '--on-bad-row', 'skip');
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /3 rows, 2 solutions\n {2}rows left out: missing_column 1\n {2}first bad row: .*line 2/,
    );
    expect((await load(to)).records).toHaveLength(2);
  });

  it('accepts the options of data, and never overwrites a file', async () => {
    const folder = temporaryDirectory();
    const to = join(folder, 'out.jsonl');
    const rating = { completions: [{ text: 'a', rating: 0 }], human_completion: null, chosen_completion: 0 };
    const from = join(folder, 'rows.json');
    writeFileSync(from, JSON.stringify([{ question: { problem: 'P' }, label: { steps: [rating] } }]));
    await cli('data', 'convert', from, to, '--set', 'data.neutral=negative');
    const limited = await cli('data', 'convert', from, `${to}.jsonl`, '--set', 'data.max_samples=1');
    expect(limited.stderr).toMatch(
      /^--set data\.max_samples: data convert writes every row that it reads, so it takes data\.source/,
    );
    expect((await load(to)).records[0]?.steps[0]?.label).toBe(0);
    expect((await cli('data', 'convert', from, to)).stderr).toBe(
      `${to} exists already; choose another name, or remove it first`,
    );
    expect((await cli('data', 'convert', from, join(folder, 'out.json'))).stderr).toMatch(
      /^the output is JSON lines: expected a name that ends in \.jsonl or \.jsonl\.gz, found /,
    );
  });

  const raw = sharedPath('data/prm800k/raw-format-sample.jsonl');
  it.skipIf(!raw)('keeps every record of the official layout', async () => {
    const to = join(temporaryDirectory(), 'out.jsonl');
    await cli('data', 'convert', raw!, to);
    const without = ({ provenance: _, ...record }: StepRecord) => record;
    const [converted, original] = [await load(to), await load(raw!)];
    expect(converted.records.map(without)).toEqual(original.records.map(without));
  });
});

describe('steptrain data stats', () => {
  it('counts the training data of a recipe', async () => {
    const folder = temporaryDirectory();
    const row = (problem: string, labels: readonly (0 | 1 | null)[]) =>
      `${JSON.stringify({ problem, steps: labels.map((label) => ({ text: 'abc', label, kind: 'normal' })) })}\n`;
    const train = join(folder, 'train.jsonl');
    const test = join(folder, 'test.jsonl');
    writeFileSync(train, row('p', [1, 1, 0]) + row('q', [1, null]));
    writeFileSync(test, row('p', [1]) + row('long '.repeat(30), [0]));
    const config = completeRunConfig({
      method: 'sft',
      data: { train, test, split: [1, 0, 0], max_length: 64 },
      sft: { micro_batch_tokens: 64 },
    });
    const { parts, overlap } = (await dataStats(config)).summary;
    expect(parts.train).toMatchObject({
      solutions: 2,
      problems: 2,
      samples: 4,
      positive: 3,
      negative: 1,
      unlabelled: 1,
    });
    // Problem, line break, then 4 characters a step up to the last labelled one: 14 and 6.
    expect(parts.train.lengths).toEqual({
      tokens: 20,
      median: 6,
      p95: 14,
      max: 14,
      stepsCut: 0,
      solutionsCut: 0,
    });
    expect(parts.test.lengths?.stepsCut).toBe(1);
    expect(overlap.test.same).toBe(1);
    const { stdout } = await cli(
      'data',
      'stats',
      'stepamc_arithmetic',
      ...['source=auto', `train=${train}`, `test=${test}`].flatMap((value) => ['--set', `data.${value}`]),
    );
    expect(stdout).toMatch(/^labelled steps +\d+ +\d+ +2$/m);
    expect(stdout).toContain('Warning: 1 test problem is also trained on, such as "p"');
  });

  const prm800k = sharedPath('data/prm800k/prm800k.jsonl.gz');
  const qwen = sharedPath('data/tokenizers/qwen2_5');
  it.skipIf(!prm800k || !qwen)('counts PRM800K with the tokenizer beside the data', async () => {
    const { code, stdout } = await cli('data', 'stats', 'tiny_prm800k_sft', '--set', `data.train=${prm800k}`);
    expect(code).toBe(0);
    expect(stdout).toContain('1818 rows, 1812 solutions');
    expect(stdout).toMatch(/^steps beyond max_length +0 +0 +0$/m);
  });
});
