/** The rival: PyTorch, with transformers and PEFT for the training step, where a Python that has them is found. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { TrialProcess } from './trial-process.js';

export interface Rival {
  readonly python: string;
  readonly versions: Readonly<Record<string, string>>;
}

const PROBE = `
import json, platform, torch
versions = {'python': platform.python_version(), 'torch': torch.__version__}
for name in ('transformers', 'peft', 'trl'):
    try: versions[name] = __import__(name).__version__
    except ImportError: pass
print(json.dumps(versions))
`;

/** STEPTRAIN_PYTHON, else python3, if it has torch; else why there is no rival. */
export function findRival(): Rival | string {
  const python = process.env.STEPTRAIN_PYTHON ?? 'python3';
  const { status, stdout, stderr, error } = spawnSync(python, ['-c', PROBE], { encoding: 'utf8' });
  if (status === 0) return { python, versions: JSON.parse(stdout.trim().split('\n').at(-1) as string) };
  const reason = error?.message ?? stderr.trim().split('\n').at(-1) ?? `exit code ${status}`;
  return `no rival: ${python} cannot import torch (${reason}); name one with STEPTRAIN_PYTHON`;
}

/** peers/ is not compiled: it is read from the sources, two levels above build/ts/bench. */
const PEERS = fileURLToPath(new URL('../../../bench/peers/trial.py', import.meta.url));

export function rivalTrial(rival: Rival, env: Readonly<Record<string, string>> = {}): TrialProcess {
  return new TrialProcess(rival.python, [PEERS], env);
}
