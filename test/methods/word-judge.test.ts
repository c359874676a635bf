// The judge of the package: word problems are judged before any run.
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadModel, type Model } from '../../src/api/model.js';
import { factPart } from '../../src/data/problems/facts.js';
import { wordProblems } from '../../src/data/problems/generate.js';
import { stepLine } from '../../src/data/problems/line.js';
import { shippedAdapter } from '../../src/models/base.js';
import { openDevice } from '../../src/runtime/device.js';
import { judgeSolutions } from '../../src/scoring/judge.js';
import { openScorers } from '../../src/scoring/open.js';
import type { Solution } from '../../src/scoring/scorer.js';
import { cli } from '../cli/run-cli.js';

const device = openDevice('cpu', { threads: 1 });
const README = 'Tom has 12 apples. Tom finds 7 more. How many apples does Tom have now?';
let folder: string;
let model: Model;
const at = (name: string) => join(folder, name);
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-word-judge-'));
  model = await loadModel(device, 'word-problems-judge');
  writeFileSync(at('problem.txt'), `${README}\n\nTom: 12 + 7 = 18\nAnswer: 18\n`);
});
afterAll(() => {
  model.dispose();
  device.dispose();
  rmSync(folder, { recursive: true, force: true });
});

const reversed = (value: number) => Number([...String(value)].reverse().join(''));

/** Problems like README's, with sums that the generator keeps out of training; each judged step in its place. */
function cases() {
  const found: { solution: Solution; at: number; kind: string }[] = [];
  for (const { problem, template, ending, plan } of wordProblems({
    ...{ seed: 77, samples: 12000, levels: [1], part: 'test' },
  })) {
    const [step] = plan;
    if (template !== 'events' || ending.kind !== 'number' || plan.length !== 1 || step?.op !== '+') continue;
    const { about, result, left: of, right: by } = step;
    const [left, right] = [of.value, by.value];
    if (factPart({ left, op: '+', right }) !== 'test') continue;
    const line = (other: Partial<Parameters<typeof stepLine>[0]> = {}) =>
      stepLine({ about, left, op: '+', right, result, ...other });
    const put = (kind: string, at: number, ...steps: string[]) =>
      found.push({ solution: { problem, steps }, at, kind });
    put('right', 0, line());
    put('right', 1, line(), `Answer: ${result}`);
    put('slip of 1', 0, line({ result: result + (found.length % 2 ? 1 : -1) }));
    put('slip of 10', 0, line({ result: result + 10 }));
    if (result > 9 && result % 10 !== 0 && reversed(result) !== result)
      put('swapped', 0, line({ result: reversed(result) }));
    put('operation', 0, line({ op: '×', result: left * right }));
    if (left > right) put('operation', 0, line({ op: '-', result: left - right }));
    put('quantity', 0, line({ about: /\d+ ([a-z]+)/.exec(problem)?.[1] ?? 'Zoe' }));
    put(
      'answer',
      1,
      line(),
      `Answer: ${[result + 1, result - 1, result + 10, left, right][found.length % 5]}`,
    );
  }
  return found;
}

describe('word-problems-judge', () => {
  it('tells right steps and each kind of wrong ones, of sums that no training saw', async () => {
    const all = cases();
    const judged = await judgeSolutions(
      model,
      all.map(({ solution }) => solution),
    );
    const told = new Map<string, boolean[]>();
    all.forEach(({ kind, at: step }, i) => {
      const probability = judged[i]?.[step]?.probability ?? (kind === 'right' ? 0 : 1);
      const isTold = kind === 'right' ? probability > 0.5 : probability < 0.5;
      for (const name of new Set([kind, kind === 'right' ? kind : 'wrong']))
        told.set(name, [...(told.get(name) ?? []), isTold]);
    });
    expect([...told.keys()].sort()).toEqual(
      ['answer', 'operation', 'quantity', 'right', 'slip of 1', 'slip of 10', 'swapped', 'wrong'].sort(),
    );
    for (const [kind, of] of told) {
      expect(of.length, kind).toBeGreaterThan(100);
      expect(of.filter(Boolean).length / of.length, kind).toBeGreaterThan(0.98);
    }
  });

  it.each(['judge problem.txt', 'judge word-problems-judge problem.txt'])(
    '%s calls both lines of the example wrong',
    async (line) => {
      const words = line.split(' ');
      const { code, stdout } = await cli(...words.map((word) => (word === 'problem.txt' ? at(word) : word)));
      expect(code).toBe(0);
      expect(stdout.match(/ wrong /g)).toHaveLength(2);
      expect(stdout).toContain(
        `wrong    Tom: 12 + 7 = 18\n${' '.repeat(25)}reason: Tom: 12 + 7 = 19; Tom: 18\n`,
      );
    },
  );

  it('says which lines are written unlike those that it learned from', async () => {
    const stderr = async (...steps: string[]) => {
      writeFileSync(at('other.txt'), `${README}\n\n${steps.join('\n')}\n`);
      return (await cli('judge', 'word-problems-judge', at('other.txt'))).stderr;
    };
    expect(await stderr('Tom: 12 + 7 = 19', 'Answer: 19')).toBe('');
    expect(await stderr('12 + 7 = 19', 'Answer: 19')).toMatch(
      /^step 1 is written unlike the steps .* such as "Answer: \d+" or "\w+: \d+ \+ \d+ = \d+": from there on/,
    );
    expect(await stderr('Tom: 12 + 7 = 19', '12+7=19', 'The answer is 19.')).toMatch(/^steps 2, 3 are/);
  });

  it('refuses a file that is no text', async () => {
    writeFileSync(at('picture.png'), Buffer.from('\x89PNG\n\n\0\0 step\n', 'latin1'));
    const { code, stdout, stderr } = await cli('judge', at('picture.png'));
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/picture\.png is no text: expected the problem, a blank line, and the steps/);
  });

  it('says which words it never met', async () => {
    writeFileSync(
      at('paul.txt'),
      `${README.replaceAll('Tom', 'Paul')}\n\nPaul: 12 + 7 = 19\nYuki: 19 + 1 = 20\nAnswer: 20\n`,
    );
    expect((await cli('judge', 'word-problems-judge', at('paul.txt'))).stderr).toMatch(
      /^the problem has words that this judge never met \(Paul\): it is unsure of every step/,
    );
    writeFileSync(at('yuki.txt'), `${README}\n\nTom: 12 + 7 = 19\nYuki: 19 + 1 = 20\nAnswer: 20\n`);
    const { stdout, stderr } = await cli('judge', 'word-problems-judge', at('yuki.txt'));
    expect(stderr).toMatch(
      /^step 2 has words that this judge never met \(Yuki\): from there on it is unsure$/m,
    );
    expect(
      stdout
        .split('\n')
        .slice(1)
        .map((row) => row.trim().split(/ {2,}/)),
    ).toEqual([
      ['1', expect.stringMatching(/^0\.9/), 'right', 'Tom: 12 + 7 = 19'],
      [expect.stringMatching(/^reason: /)],
      ['2', '–', 'unsure', 'Yuki: 19 + 1 = 20'],
      ['3', '–', 'unsure', 'Answer: 20'],
    ]);
  });

  it('scores, and rewards, by its name and by its directory', async () => {
    const row = (result: number) => ({ problem: README, steps: [`Tom: 12 + 7 = ${result}`] });
    writeFileSync(at('rows.jsonl'), [19, 18].map((result) => `${JSON.stringify(row(result))}\n`).join(''));
    const { code, stdout } = await cli('score', at('rows.jsonl'), '--device', 'cpu');
    expect(code).toBe(0);
    const scores = stdout.split('\n').map((line) => (JSON.parse(line) as { scores: number[] }).scores[0]);
    const reasons = stdout.split('\n').map((row) => (JSON.parse(row) as { reasons: string[] }).reasons[0]);
    expect(reasons).toEqual(['Tom: 12 + 7 = 19; Tom: 19', 'Tom: 12 + 7 = 19; Tom: 18']);
    expect(scores[0]).toBeGreaterThan(0.5);
    expect(scores[1]).toBeLessThan(0.5);
    for (const name of ['word-problems-judge', shippedAdapter('word-problems-judge')]) {
      const opened = await openScorers(device, name as string);
      const scored = await opened.scorers.verdict?.score([row(19), row(18)]);
      opened.dispose();
      expect(scored?.map((of) => of.scores[0])).toEqual(scores);
    }
  });

  it('goes by the words alone where it is merged into its base, or asked in other words', async () => {
    const { code, stdout } = await cli('merge', 'word-problems-judge', at('merged'));
    expect([code, stdout]).toEqual([
      0,
      expect.stringContaining('it judges steps by its verdict words alone'),
    ]);
    // Refused before anything is merged.
    const asGguf = await cli('merge', 'word-problems-judge', at('merged.gguf'), '--no-check');
    expect(asGguf).toMatchObject({ code: 1, stdout: '' });
    expect(asGguf.stderr).toContain('cannot be written as GGUF, only as a directory');
    const merged = await loadModel(device, at('merged'));
    const steps = ['Tom: 12 + 7 = 18', 'Answer: 18'];
    const prompt = { pos_word: '1' };
    const [byMerged] = await judgeSolutions(merged, [{ problem: README, steps }]);
    const [byWords] = await judgeSolutions(model, [{ problem: README, steps }], { prompt });
    const [byBoth] = await judgeSolutions(model, [{ problem: README, steps }]);
    merged.dispose();
    byMerged?.forEach(({ probability }, i) => {
      expect(probability).toBeCloseTo(byWords?.[i]?.probability as number, 2);
      expect(Math.abs((probability as number) - (byBoth?.[i]?.probability as number))).toBeGreaterThan(0.02);
    });
  });

  it('adds little to the package, and names no folder of a machine', () => {
    const directory = shippedAdapter('word-problems-judge') as string;
    expect(statSync(join(directory, 'adapter_model.safetensors')).size).toBeLessThan(1.5e6);
    const texts = ['adapter_config.json', 'steptrain.json'].map((name) =>
      readFileSync(join(directory, name), 'utf8'),
    );
    for (const text of texts) expect(text).not.toMatch(/"\//);
    const card = JSON.parse(texts[1] as string) as { base: string; method: string };
    expect(card).toMatchObject({ base: 'word-problems-attempts', method: 'stepamc' });
  });
});
