import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { Interrupted } from '../../src/cli/line/error.js';
import { type RunRecipe, resumeRun, startRun } from '../../src/cli/run.js';
import { baselineMetrics, confusionMetrics } from '../../src/eval/statistics/metrics.js';
import { parseRunConfig } from '../../src/methods/config.js';
import { DamagedRunError, RunError } from '../../src/run/error.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { capture, cli } from './run-cli.js';

let folder: string;
beforeEach(() => {
  folder = temporaryDirectory();
});

const evaluation = {
  method: 'sft',
  data: { source: 'arithmetic', test: 100 },
  metrics: { ...confusionMetrics({ tp: 40, fn: 10, fp: 5, tn: 45 }), invalid: 2 },
  baselines: baselineMetrics({ positives: 50, negatives: 50, positivePrior: 0.5 }),
};

// As a successful run does.
const succeed: RunRecipe = async (_config, run) => {
  await run.writeJson('eval.json', evaluation);
  return { status: 'finished', step: 12, evaluation };
};

const start = (recipe: RunRecipe, args: Parameters<typeof startRun>[0] = {}) =>
  capture(async () => {
    await startRun({ set: [`run.output_dir=${join(folder, 'run')}`], ...args }, async () => recipe);
    return 0;
  });

describe('a run', () => {
  it('gets a merged configuration and a directory, and its evaluation is printed', async () => {
    const seen: unknown[] = [];
    const { stdout, stderr } = await start(async (config, run, signal, options) => {
      seen.push(config, run.path, signal.aborted, options);
      return succeed(config, run, signal, options);
    });
    const path = join(folder, 'run');
    const written = parseRunConfig(readFileSync(join(path, 'config.yaml'), 'utf8'), {
      name: 'config.yaml',
    }).config;
    const prepared = expect.objectContaining({ config: written });
    expect(seen).toEqual([written, path, false, { resume: false, onStep: expect.any(Function), prepared }]);
    expect(written.run.output_dir).toBe(path);
    expect(JSON.parse(readFileSync(join(path, 'eval.json'), 'utf8'))).toEqual(evaluation);
    expect(stdout).toMatch(/^100 steps, % +sft/);
    expect(stderr).toContain('Done after 12 steps');
    expect(stderr).toMatch(/\/report\.html$/);
    // Every metric and note is printed on request.
    expect(stdout).not.toContain('F1 micro');
    expect((await cli('eval', path)).stdout).toMatch(/^100 steps, % +sft(.*\n)+F1 micro/);
    expect(JSON.parse((await cli('eval', path, '--json')).stdout)).toEqual(evaluation);
  });

  it('does not touch an earlier run', async () => {
    const first = await start(succeed);
    expect(first.stderr).not.toContain('taken');
    const { stderr } = await start(succeed);
    const [path, second] = ['run', 'run-2'].map((name) => join(folder, name));
    // At the start and at the end, as its name is another than the recipe's.
    expect(stderr).toContain(`Run directory: ${second}, since ${path} is taken\n`);
    expect(stderr).toContain(`everything is in ${second}, not in ${path}, which was taken`);
    expect(existsSync(join(folder, 'run-2/eval.json'))).toBe(true);
    const { config } = parseRunConfig(readFileSync(join(folder, 'run-2/config.yaml'), 'utf8'), { name: 'c' });
    expect(config.run.output_dir).toBe(join(folder, 'run-2'));
    await expect(start(succeed, { output: join(folder, 'run') })).rejects.toThrow('already holds files');
  });

  it('says how to resume when it is interrupted', async () => {
    const path = join(folder, 'run');
    const interrupted = start(async (_config, _run, signal) => {
      const aborted = new Promise((resolve) => signal.addEventListener('abort', resolve));
      process.emit('SIGINT');
      await aborted;
      return { status: 'interrupted', step: 5 };
    });
    await expect(interrupted).rejects.toThrow(
      new Interrupted(`Stopped after step 5. To resume: npx steptrain run --resume ${path}`),
    );
    expect(process.listenerCount('SIGINT')).toBe(0);
    expect(existsSync(join(path, 'eval.json'))).toBe(false);
    expect(existsSync(join(path, '.lock'))).toBe(false);
  });

  it('says of an interrupted one where it stopped, as its progress line counts', async () => {
    const interrupted = start(async (_config, _run, _signal, { onStep }) => {
      const event = {
        kind: 'step',
        stage: 'reward_network',
        stageStep: 140,
        stageSteps: 147,
        step: 891,
      } as const;
      onStep?.({ ...event, tokens: 0, metrics: {} });
      return { status: 'interrupted', step: 891 };
    });
    await expect(interrupted).rejects.toThrow(/^Stopped after reward_network step 140\/147\. To resume: /);
  });

  it('does not advise to try again what no checkpoint allows', async () => {
    const failing = (error: Error) =>
      capture(async () => {
        const recipe: RunRecipe = async (_config, run) => {
          run.metrics.append({ step: 1 });
          throw error;
        };
        const set = [`run.output_dir=${join(folder, 'run')}`];
        await startRun({ set }, async () => recipe).catch(() => {});
        return 1;
      });
    expect((await failing(new RunError('disk'))).stderr).toContain(
      'There is no checkpoint yet; to begin the run again: npx steptrain run --resume ',
    );
    rmSync(join(folder, 'run'), { recursive: true });
    expect((await failing(new DamagedRunError('every checkpoint is damaged'))).stderr).not.toContain(
      'To resume: ',
    );
  });

  it('unlocks its directory when it fails', async () => {
    await expect(start(() => Promise.reject(new Error('out of memory')))).rejects.toThrow('out of memory');
    expect(existsSync(join(folder, 'run/.lock'))).toBe(false);
  });

  it('says that its directory is gone when it fails before anything is logged', async () => {
    const { stderr } = await capture(async () => {
      const set = [`run.output_dir=${join(folder, 'run')}`];
      await startRun({ set }, async () => () => Promise.reject(new RunError('no base'))).catch(() => {});
      return 1;
    });
    expect(stderr).toBe(
      `Run directory: ${join(folder, 'run')}\n${join(folder, 'run')} is removed again, as nothing was trained yet`,
    );
  });

  it('does not start with an unusable recipe', async () => {
    const set = [`run.output_dir=${join(folder, 'run')}`, 'data.source=prm800k', 'data.train=nowhere.jsonl'];
    const begin = start(() => Promise.reject(new Error('begun')), { set });
    await expect(begin).rejects.toThrow('--set data.train=nowhere.jsonl: data.train leads nowhere');
    expect(existsSync(join(folder, 'run'))).toBe(false);
  });
});

describe('a resumed run', () => {
  const resume = (recipe: RunRecipe, more = {}) =>
    capture(async () => {
      await resumeRun({ resume: join(folder, 'run'), ...more }, async () => recipe);
      return 0;
    });

  it('has the configuration of the first session', async () => {
    let first: unknown;
    await start(async (config, run) => {
      first = config;
      run.metrics.append({ step: 1 });
      return { status: 'finished', step: 1 };
    });
    await resume(async (config, run, _signal, options) => {
      expect(config).toEqual(first);
      expect(options).toMatchObject({ resume: true });
      expect(run.metrics.length).toBeGreaterThan(0);
      return { status: 'finished', step: 2, evaluation };
    });
  });

  it('takes a weak reward model where it is told to', async () => {
    await start(succeed);
    await resume(
      async (config) => {
        expect(config.run.accept_weak_reward).toBe(true);
        return { status: 'finished', step: 2, evaluation };
      },
      { 'accept-weak-reward': true },
    );
  });

  it('needs a run directory', async () => {
    await expect(resume(succeed)).rejects.toThrow('is not a run directory: config.yaml in it cannot be read');
  });

  it('refuses a damaged configuration and names the place', async () => {
    await start(succeed);
    writeFileSync(join(folder, 'run/config.yaml'), 'method: sft\nsft: {learning_rat: 1}\n');
    await expect(resume(succeed)).rejects.toThrow(/run\/config\.yaml:2:7: unknown key "learning_rat" in sft/);
  });
});

describe('steptrain eval', () => {
  it('refuses a file that is not an evaluation', async () => {
    writeFileSync(join(folder, 'eval.json'), '{"method": "sft", "data": {}, "metrics": {}, "baselines": {}}');
    const { code, stderr } = await cli('eval', folder);
    expect(code).toBe(1);
    expect(stderr).toMatch(/^.*eval\.json is not an evaluation of steptrain: metrics\.n: /);
    writeFileSync(join(folder, 'eval.json'), '{"method": ');
    expect((await cli('eval', folder)).stderr).toMatch(/eval\.json is not valid JSON/);
  });
});
