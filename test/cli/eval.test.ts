// The eval commands on the embedded model and generated problems.
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { arithmeticRecords } from '../../src/data/arithmetic.js';
import { sharedPath } from '../shared.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { cli } from './run-cli.js';

let folder: string;
beforeEach(() => {
  folder = temporaryDirectory();
});

/** A file of generated solutions in the project's own layout. */
function steps(name: string, options: { readonly first: number; readonly samples: number }): string {
  const path = join(folder, name);
  const records = arithmeticRecords({ seed: 1, error_rate: 0.4, ...options });
  writeFileSync(path, [...records].map((record) => `${JSON.stringify(record)}\n`).join(''));
  return path;
}

const correction = (...args: readonly string[]) => cli('eval', 'correction', '--device', 'cpu', ...args);
const embedded = ['--model', 'embedded', '--pos-word', '1', '--neg-word', '0', '--template', 'compact'];
const readJson = (path: string) => JSON.parse(readFileSync(path, 'utf8'));

describe('steptrain eval correction with a model', () => {
  it('judges a file, prints the report and writes it with every verdict', async () => {
    const data = steps('test.jsonl', { first: 0, samples: 20 });
    const output = join(folder, 'out/a');
    const { code, stdout } = await correction(...embedded, '--data', data, '--output', output);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^80 steps, % +model +95 % CI +random +majority$/m);
    expect(stdout).toContain('ProcessBench F1, test: ');
    expect(stdout).not.toContain('chosen on validation');
    const report = readJson(join(output, 'eval.json'));
    expect(report.metrics.n).toBe(80);
    expect(report.data).toMatchObject({
      files: [data],
      model: 'embedded',
      test_solutions: 20,
      test_steps: 80,
    });
    const rows = readFileSync(join(output, 'verdicts.jsonl'), 'utf8').trimEnd().split('\n');
    expect(rows).toHaveLength(80);
    const verdicts = rows.map((row) => JSON.parse(row));
    const right = verdicts.filter(({ label, verdict }) => label === verdict).length;
    expect(report.metrics.accuracy).toBe(right / 80);

    expect((await cli('eval', output)).stdout).toBe(stdout);
    expect((await cli('eval', 'show', output)).stdout).toBe(stdout);
    expect(JSON.parse((await cli('eval', 'show', output, '--json')).stdout)).toEqual(report);
    const { stdout: details } = await cli('eval', 'show', output, '--details');
    expect(details).toMatch(/^threshold +Acc_pos.*\n0\.050 /m);
    expect(details).toMatch(/^P\(right\) +steps +mean +right\n0\.\d to /m);
  });

  it('takes the verdict from the probability with a threshold', async () => {
    const data = steps('test.jsonl', { first: 0, samples: 10 });
    const run = async (threshold: string) => {
      const { stdout } = await correction(...embedded, '--data', data, '--threshold', threshold, '--json');
      return JSON.parse(stdout);
    };
    const [low, high] = [await run('0.001'), await run('0.999')];
    expect(low.metrics.acc_pos).toBeGreaterThan(high.metrics.acc_pos);
    expect(low.metrics.acc_neg).toBeLessThan(high.metrics.acc_neg);
    expect(low.threshold_sweep.table).toEqual(high.threshold_sweep.table);
  });

  it('judges a sample drawn by seed if a number is given, else all, and selects thresholds only on the validation file', async () => {
    const data = steps('test.jsonl', { first: 0, samples: 8 });
    const validation = steps('validation.jsonl', { first: 100, samples: 8 });
    const judge = async (...args: readonly string[]) =>
      JSON.parse((await correction(...embedded, '--data', data, '--json', ...args)).stdout);
    const few = await judge('--max-samples', '3', '--validation', validation);
    // Its counter goes on to 6, of which 3 choose thresholds.
    const told = await correction(
      ...embedded,
      '--data',
      data,
      '--max-samples',
      '3',
      '--validation',
      validation,
    );
    expect(told.stderr).toContain('judging 3 solutions, and 3 of validation, which choose thresholds');
    expect(few.data).toMatchObject({
      test_solutions: 3,
      solutions_in_file: 8,
      sample_seed: 0,
      files: [validation, data],
    });
    expect(few.warnings).toContain('3 of 8 solutions were judged, drawn by data.seed 0');
    // The last rows of a benchmark are not always left out: the sample is the same in any order of the file.
    const lines = readFileSync(data, 'utf8').trimEnd().split('\n');
    writeFileSync(data, `${lines.reverse().join('\n')}\n`);
    expect((await judge('--max-samples', '3', '--validation', validation)).metrics).toEqual(few.metrics);
    expect((await judge('--max-samples', 'all')).data).toMatchObject({ test_solutions: 8 });
    expect(few.threshold_sweep.chosen.f1_macro.metrics.n).toBe(12);
    const other = await judge('--validation', validation);
    const chosen = (report: typeof few) => report.threshold_sweep.chosen;
    const three = await judge('--max-samples', '8', '--validation', validation);
    expect(chosen(three).f1_macro.threshold).toBe(chosen(other).f1_macro.threshold);
    expect(chosen(other).f1_macro.validation).toBeGreaterThan(0.3);
  });

  it('breaks the metrics down by a column', async () => {
    const data = steps('test.jsonl', { first: 0, samples: 4 });
    const rows = readFileSync(data, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    const named = rows.map((row, i) => JSON.stringify({ ...row, group: i % 2 === 0 ? 'even' : 'odd' }));
    writeFileSync(data, named.join('\n'));
    const judge = (...args: readonly string[]) => correction(...embedded, '--data', data, '--by', ...args);
    const { groups, metrics } = JSON.parse((await judge('group', '--json')).stdout);
    expect(Object.keys(groups)).toEqual(['even', 'odd']);
    expect(groups.even.n + groups.odd.n).toBe(metrics.n);
    const lost = await judge('colour');
    expect(lost.code).toBe(1);
    expect(lost.stderr).toMatch(
      /test\.jsonl, line 1: column 'colour' to group by is missing; the columns are/,
    );
  });

  it('stops at an unreadable row, or skips and counts it', async () => {
    const data = steps('test.jsonl', { first: 0, samples: 4 });
    const bad = { problem: 'Add.', steps: [{ text: '', label: 1 }] };
    writeFileSync(data, `${JSON.stringify(bad)}\n${readFileSync(data, 'utf8')}`);
    const stopped = await correction(...embedded, '--data', data);
    expect(stopped.code).toBe(1);
    expect(stopped.stderr).toMatch(/test\.jsonl, line 1: /);
    const { code, stdout } = await correction(...embedded, '--data', data, '--on-bad-row', 'skip', '--json');
    expect(code).toBe(0);
    const report = JSON.parse(stdout);
    expect(report.data.test_solutions).toBe(4);
    expect(Object.values(report.data.skipped_rows)).toEqual([1]);
    expect(report.warnings).toContainEqual(
      expect.stringMatching(/^1 row of --data cannot be read and is left out \(\w+ 1\)$/),
    );
  });

  it('shows every number of --details with one decimal', async () => {
    const data = steps('test.jsonl', { first: 0, samples: 4 });
    const { stdout } = await correction(...embedded, '--data', data, '--details');
    const row = /^0\.050 +(.*)$/m.exec(stdout)?.[1]?.trim().split(/ +/) ?? [];
    expect(row).toHaveLength(4);
    for (const cell of row) expect(cell).toMatch(/^\d+\.\d$/);
  });

  it('names the steps that are too long for the model', async () => {
    const data = steps('test.jsonl', { first: 0, samples: 5 });
    const { stdout } = await correction(...embedded, '--data', data, '--max-length', '30');
    expect(stdout.replaceAll('\n  ', ' ')).toMatch(
      /Warning: 1\d labelled steps lie beyond the longest sequence of 30 tokens and were not judged/,
    );
  });

  it('does not overwrite an earlier evaluation', async () => {
    const data = steps('test.jsonl', { first: 0, samples: 2 });
    writeFileSync(join(folder, 'eval.json'), 'mine');
    const { code, stderr } = await correction(...embedded, '--data', data, '--output', folder);
    expect(code).toBe(1);
    expect(stderr).toBe(`${folder} already holds eval.json; choose another directory for --output`);
    expect(readFileSync(join(folder, 'eval.json'), 'utf8')).toBe('mine');
  });

  it.each([
    [[], 'name a run, or a model with --data FILE'],
    [
      ['--model', 'embedded'],
      'embedded is no run with steps of its own: name those to judge with --data FILE',
    ],
    [['runs/gone'], 'there is no run runs/gone; name one, or the steps to judge with --data FILE'],
    [['--adapter', 'x'], '--adapter needs --model'],
    [['run', '--model', 'embedded'], 'run-or-model and --model exclude each other; give one of them'],
    [['run', '--threshold', '1.1'], '--threshold expects greedy or a number from 0 to 1, found 1.1'],
    [['run', '--threshold', 'often'], '--threshold expects greedy or a number from 0 to 1, found often'],
    [['run', '--max-samples', '0'], '--max-samples expects all or a whole number of at least 1, found 0'],
    [['run', '--max-length', 'x'], '--max-length expects a number, found x'],
    [
      ['--model', 'embedded', '--data', './nowhere.jsonl'],
      `--data: there is no ./nowhere.jsonl (looked for from ${process.cwd()})`,
    ],
  ])('reports bad usage %j in one sentence with exit code 1', async (args, sentence) => {
    expect(await correction(...args)).toEqual({ code: 1, stdout: '', stderr: sentence });
  });

  it('refuses an unknown device', async () => {
    const { code, stderr } = await cli(
      'eval',
      'correction',
      '--model',
      'embedded',
      '--data',
      'x',
      '--device',
      'tpu',
    );
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: '--device expects auto, cpu, cuda or cuda:N, found tpu',
    });
  });
});

describe('steptrain eval compare', () => {
  it('compares two outputs on the same steps and refuses others', async () => {
    const data = steps('test.jsonl', { first: 0, samples: 12 });
    const [a, b, c] = ['a', 'b', 'c'].map((name) => join(folder, name)) as [string, string, string];
    await correction(...embedded, '--data', data, '--output', a);
    await correction(...embedded, '--data', data, '--threshold', '0.999', '--output', b);
    await correction(...embedded, '--data', data, '--max-problems', '11', '--output', c);
    const { code, stdout } = await cli('eval', 'compare', a, b);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^48 steps, % +A +B +B − A +95 % CI +p\nF1 macro /);
    const json = JSON.parse((await cli('eval', 'compare', a, b, '--json')).stdout);
    expect(json.a).toMatchObject({ acc_pos: readJson(join(a, 'eval.json')).metrics.acc_pos });
    expect(json).toMatchObject({ steps: 48, problems: 12 });
    expect(await cli('eval', 'compare', a, c)).toEqual({
      code: 1,
      stdout: '',
      stderr:
        'the first judged 48 steps and the second 44; only verdicts on the same steps can be compared: judge the same ' +
        'data with the same limits',
    });
  });
});

describe('steptrain eval correction with a run', () => {
  async function trained(...set: readonly string[]): Promise<string> {
    const run = join(folder, 'run');
    const settings = [
      'data.arithmetic.samples=150',
      'sft.tokens_per_step=512',
      'sft.micro_batch_tokens=512',
      ...set,
    ];
    const { code, stderr } = await cli(
      'run',
      '--output',
      run,
      ...settings.flatMap((one) => ['--set', one]),
      'stepamc_arithmetic',
    );
    expect(stderr).toMatch(/Done after/);
    expect(code).toBe(0);
    return run;
  }

  it('gets the metrics of the run on its test part', async () => {
    const run = await trained();
    const output = join(folder, 'out');
    const { code } = await correction(run, '--output', output);
    expect(code).toBe(0);
    const [own, again] = [readJson(join(run, 'eval.json')), readJson(join(output, 'eval.json'))];
    expect(again.metrics).toEqual(own.metrics);
    for (const name of Object.keys(own.baselines)) expect(again.baselines[name]).toEqual(own.baselines[name]);
    expect(again.data).toMatchObject({ train_steps: own.data.train_steps, test_steps: own.data.test_steps });
    expect(again.threshold_sweep.chosen.f1_macro.validation).toBeGreaterThan(0);
    expect(again.intervals.seed).toBe(42);

    // Problems 0 … 149 are the training, validation and test parts of the run.
    const seen = steps('seen.jsonl', { first: 0, samples: 150 });
    const { stdout } = await correction(run, '--data', seen, '--max-samples', '20');
    expect(stdout).toMatch(/Warning: \d+ problems of the judged solutions are also trained on/);

    const wrong = await correction(run, '--data', seen, '--source', 'prm800k');
    expect(wrong.code).toBe(1);
    expect(wrong.stderr).toMatch(/seen\.jsonl, line 1: .*\(read as prm800k\)/);

    renameSync(join(run, 'adapter'), join(run, 'gone'));
    const unfinished = await correction(run);
    expect(unfinished.stderr).toBe(
      `${run} holds neither adapter/ nor model/: its training has not ended; continue with: npx steptrain run --resume ${run}`,
    );
  });

  it('counts the turns of other calls as unseen, as the run does', async () => {
    const run = join(folder, 'turns');
    const tiny = ['data.word_problems.samples=60', 'reward_model.max_steps=1'];
    const set = tiny.flatMap((one) => ['--set', one]);
    const made = await cli('run', 'quickstart_turns_judge', '--output', run, ...set);
    expect(made.code, made.stderr).toBe(0);
    const { metrics_unseen } = readJson(join(run, 'eval.json'));
    // Many turns only call the calculator: their text alone is empty, and so the same everywhere.
    expect(metrics_unseen.n).toBeGreaterThan(0);
    const { stdout } = await correction(run, '--json');
    expect(JSON.parse(stdout).metrics_unseen).toEqual(metrics_unseen);
  });

  it('refuses a run that does not judge steps', async () => {
    expect((await correction(folder)).stderr).toMatch(
      /is no run with steps of its own: name those to judge with --data FILE$/,
    );
    mkdirSync(join(folder, 'pretrain'));
    const recipe = readFileSync('recipes/pretrain_arithmetic.yaml', 'utf8');
    writeFileSync(join(folder, 'pretrain/config.yaml'), recipe);
    expect((await correction(join(folder, 'pretrain'))).stderr).toMatch(
      /is a run of method pretrain, whose model judges no steps$/,
    );
  });
});

const processbench = sharedPath('data/processbench/gsm8k.json.gz');
describe.skipIf(!processbench)('real data (skipped where the shared data is absent)', () => {
  it('is judged from ProcessBench, with its F1', async () => {
    const { code, stdout } = await correction(...embedded, '--data', processbench!, '--max-samples', '20');
    expect(code).toBe(0);
    expect(stdout).toMatch(/ProcessBench F1, gsm8k: \d+\.\d \(20 solutions/);
    // The embedded model reads at most 512 bytes.
    expect(stdout).toMatch(/labelled steps lie beyond the longest sequence of 512/);
    expect(existsSync(join(folder, 'eval.json'))).toBe(false);
  });
});
