// A judge from few rows of one's own, in words that no generator of the package has.
import { execFileSync } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { compiled, steptrain } from './program.js';

const INDEX = new URL('../../dist/entries/index.js', import.meta.url).href;
const ROWS = fileURLToPath(new URL('../../research/scripts/own-rows.mjs', import.meta.url));

describe.skipIf(!compiled)('sixty rows', () => {
  let folder: string;
  let run: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'steptrain-own-'));
    run = join(folder, 'run');
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));
  const judged = async (problem: string, ...steps: string[]) => {
    const file = join(folder, 'problem.txt');
    await writeFile(file, `${problem}\n\n${steps.join('\n')}\n`);
    const { out, err, code } = await steptrain(['judge', run, file]);
    expect(code, err).toBe(0);
    return { verdicts: out.match(/ (right|wrong|not checked) /g)?.map((word) => word.trim()), err };
  };

  test('give a judge of calculations in any words', async () => {
    const rows = join(folder, 'rows.jsonl');
    execFileSync(process.execPath, [ROWS, 'wordings', '60', rows, '7']);
    const set = [`data.train=${rows}`, 'run.threads=1'].flatMap((setting) => ['--set', setting]);
    const { code, err } = await steptrain(['run', 'my_steps', '--output', run, ...set]);
    expect(code, err).toBe(0);
    const { metrics, words, data } = JSON.parse(await readFile(join(run, 'eval.json'), 'utf8'));
    // A fifth of the rows for each held-out part, and evaluations within so short a run.
    expect(data.test_solutions).toBeGreaterThanOrEqual(8);
    expect(err.match(/sft step \d+: validation/g)?.length).toBeGreaterThan(4);
    // The judge that is kept comes first everywhere.
    expect(metrics.auc).toBeGreaterThan(0.85);
    expect(words.metrics.auc).toBeLessThan(metrics.auc);
    const verdicts = (await readFile(join(run, 'verdicts.jsonl'), 'utf8'))
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    const right = verdicts.filter(({ label, verdict }) => label === verdict).length;
    expect(right / verdicts.length).toBeCloseTo(metrics.accuracy, 9);
  });

  test('whoever they tell of; what writes out no calculation is named', async () => {
    const problem = 'Oksana has 34 buttons and sews 19 more on a coat.';
    const right = await judged(problem, 'Buttons on the coat in the end: 34 + 19 = 53');
    expect(right.verdicts).toEqual(['right']);
    // Beside sixty rows the words have no weight.
    expect(right.err).toBe(
      'verdicts come from calculations alone, without the words of the model: here step 1 could be computed\n',
    );
    expect((await judged(problem, 'Buttons on the coat in the end: 34 + 19 = 54')).verdicts).toEqual([
      'wrong',
    ]);
    const unchecked = await judged(problem, 'She sews on.', '34 + 19 = 53');
    expect(unchecked.verdicts).toEqual(['not checked', 'right']);
    expect(unchecked.err).toMatch(
      /: here step 2 could be computed\nnot checked: the step writes out no calculation/,
    );
  });
});

test.skipIf(!compiled)('a program learns which row is bad: file, line and row', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'steptrain-bad-'));
  const file = join(folder, 'rows.jsonl');
  await writeFile(
    file,
    '{"question":"1+1?","steps":["2"],"labels":[1]}\n{"question":"x","steps":["a","b"],"labels":[1]}\n',
  );
  const config = {
    method: 'sft',
    data: { train: file },
    run: { output_dir: join(folder, 'run'), device: 'cpu' },
  };
  const program = `const { train } = await import(${JSON.stringify(INDEX)});
    await train(${JSON.stringify(config)}).catch(({ code, kind, position }) => console.log(JSON.stringify({ code, kind, position })));`;
  const out = execFileSync(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const lines = out.toString().trim().split('\n');
  expect(JSON.parse(lines.at(-1) ?? '')).toEqual({
    code: 'E_DATA',
    kind: 'row',
    position: { file, line: 2, row: 2 },
  });
  await rm(folder, { recursive: true, force: true });
});
