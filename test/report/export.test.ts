// Runs logged by the Python packages of trackers: here by stubs that write down what they are called with.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { exportRun } from '../../src/report/export.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { makeRun } from './run-fixture.js';

const absent = spawnSync('python3', ['--version']).status === 0 ? '' : ' (skipped: there is no python3)';

const SAID = `
import json, os
def said(*what):
    with open(os.environ["SAID"], "a") as file:
        file.write(json.dumps(what) + "\\n")
`;
const PACKAGES = {
  wandb: `${SAID}
class Run:
    def __enter__(self): return self
    def __exit__(self, *_): said("end")
    def log(self, values, step): said("log", step, values)
def init(project, name, id, resume, config):
    said("init", project, name, config["run.seed"], os.environ.get("WANDB_MODE"))
    return Run()
`,
  trackio: `${SAID}
def init(project, name, config): said("init", project, name, config["run.seed"])
def log(values, step): said("log", step, values)
def finish(): said("end")
`,
};

describe.skipIf(absent !== '')(`a run${absent}`, () => {
  let folder: string;
  let run: string;
  beforeEach(() => {
    folder = temporaryDirectory();
    run = makeRun(join(folder, 'mine'), { steps: 3 });
    for (const [name, text] of Object.entries(PACKAGES)) {
      mkdirSync(join(folder, name));
      writeFileSync(join(folder, name, '__init__.py'), text);
    }
    vi.stubEnv('PYTHONPATH', folder);
    vi.stubEnv('SAID', join(folder, 'said.jsonl'));
    vi.stubEnv('WANDB_MODE', 'online');
  });
  afterEach(() => vi.unstubAllEnvs());

  const said = () =>
    readFileSync(join(folder, 'said.jsonl'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as unknown[]);

  it.each([
    ['wandb', false, 'offline'],
    ['wandb', true, 'online'],
    ['trackio', false, undefined],
  ] as const)('is logged by %s with every number under its phase (online: %s)', async (to, online, mode) => {
    await exportRun(run, to, { project: 'steps', online });
    const [first, ...rest] = said();
    expect(first).toEqual(['init', 'steps', 'mine', 42, ...(mode ? [mode] : [])]);
    expect(rest.at(-1)).toEqual(['end']);
    const policy = rest.filter(([, , values]) => values && 'ppo/value_loss' in (values as object));
    expect(policy.map(([, step]) => step)).toEqual([21, 22, 23]);
    expect(policy[0]?.[2]).toMatchObject({ 'ppo/loss': 1, 'ppo/reward_min': -1 });
  });

  it('is refused in one sentence where something is missing', async () => {
    await expect(exportRun(folder, 'wandb')).rejects.toThrow(/is no run directory: it has no config\.yaml/);
    await expect(exportRun(run, 'mlflow')).rejects.toThrow(
      'python3 has no package mlflow: python3 -m pip install mlflow',
    );
    await expect(exportRun(run, 'wandb', { python: './nowhere/python' })).rejects.toThrow(
      /there is no \.\/nowhere\/python here, which has to log .*export\.json by the package wandb: name one with --python/,
    );
    writeFileSync(join(folder, 'wandb', '__init__.py'), 'raise RuntimeError("no key")\n');
    await expect(exportRun(run, 'wandb')).rejects.toThrow(
      /wandb did not take .*export\.json: RuntimeError: no key/,
    );
  });
});
