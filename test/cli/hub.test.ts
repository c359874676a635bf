// steptrain hub push, against a server that takes commits as the hub does.
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { parse } from 'yaml';
import { completeRunConfig, formatRunConfig } from '../../src/methods/config.js';
import { type PushServer, startPushServer, TOKEN } from '../hub/push-server.js';
import { goldenDirectory } from '../models/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { cli } from './run-cli.js';

const ADAPTER = join(goldenDirectory('qwen2'), 'adapter');

let run: string;
let hub: PushServer;

const BASE = '/home/anna/.cache/huggingface/hub/models--qwen--tiny/snapshots/0123';

beforeEach(async () => {
  hub = await startPushServer();
  run = join(temporaryDirectory(), 'run');
  const adapter = join(run, 'adapter');
  mkdirSync(run);
  cpSync(ADAPTER, adapter, { recursive: true });
  named(BASE);
  const config = completeRunConfig({
    method: 'sft',
    data: { train: [{ path: '/home/anna/data/steps.jsonl', weight: 2 }] },
    model: { base: BASE },
    run: { output_dir: '/home/anna/runs/run' },
  });
  writeFileSync(join(run, 'config.yaml'), formatRunConfig(config));
  vi.stubEnv('HF_ENDPOINT', hub.endpoint);
  vi.stubEnv('HF_TOKEN', TOKEN);
  vi.stubEnv('HF_HUB_OFFLINE', '0');
  vi.stubEnv('HF_HOME', temporaryDirectory());
});
afterEach(() => {
  vi.unstubAllEnvs();
});

/** Writes the base that the adapter names. */
function named(base: string): void {
  const path = join(run, 'adapter/adapter_config.json');
  const config = JSON.parse(readFileSync(path, 'utf8'));
  writeFileSync(path, JSON.stringify({ ...config, base_model_name_or_path: base }));
  writeFileSync(join(run, 'adapter/steptrain.json'), JSON.stringify({ method: 'sft', base, dtype: 'f32' }));
}

const push = (...args: readonly string[]) => cli('hub', 'push', run, 'anna/steps', ...args);

describe('steptrain hub push', () => {
  it('commits the adapter with a card, large files by the storage, the token to the hub alone', async () => {
    const { code, stdout, stderr } = await push('--message', 'First', '--private');
    expect({ code, stdout }).toEqual({ code: 0, stdout: `${hub.endpoint}/anna/steps/commit/abc` });
    expect(hub.made).toEqual([{ type: 'model', name: 'steps', organization: 'anna', private: true }]);
    const files = hub.repositories.get('anna/steps') ?? {};
    const weights = readFileSync(join(run, 'adapter/adapter_model.safetensors'));
    expect(files['adapter_model.safetensors']?.equals(weights)).toBe(true);
    expect([...hub.stored.values()].some((content) => content.equals(weights))).toBe(true);
    expect(JSON.parse(String(files['adapter_config.json'])).base_model_name_or_path).toBe('qwen/tiny');
    expect(JSON.parse(String(files['steptrain.json'])).base).toBe('qwen/tiny');
    const readme = String(files['README.md']);
    expect(parse(readme.split('---')[1] as string)).toEqual({
      library_name: 'peft',
      base_model: 'qwen/tiny',
      base_model_relation: 'adapter',
      license: 'apache-2.0',
      tags: ['steptrain', 'lora', 'sft'],
    });
    expect(readme).toContain('- train: `steps.jsonl` (weight 2)');
    expect(readme).toMatch(/```yaml\nmethod: sft\n/);
    expect(hub.messages).toEqual(['First']);
    expect(hub.leaked).toEqual([]);
    // No folder of this machine, and no token, leaves it or is shown.
    const sent = Object.entries(files).filter(([name]) => !name.endsWith('.safetensors'));
    for (const [name, content] of sent)
      expect(String(content), name).not.toMatch(/\/home|anna\/data|hf_secret/);
    expect(stdout + stderr).not.toContain(TOKEN);
  });

  it('shows what it would send and sends nothing with --dry-run, without a token too', async () => {
    vi.stubEnv('HF_TOKEN', '');
    const { code, stdout } = await push('--dry-run');
    expect(code).toBe(0);
    expect(stdout).toMatch(/anna\/steps, branch main:\n {2}README\.md {2}[\d.]+ k?B\n/);
    expect(stdout).toContain('base_model: qwen/tiny');
    expect(hub.requests.filter((request) => !request.startsWith('GET '))).toEqual([]);
  });

  it('takes the run by --model too, once', async () => {
    const { code, stdout } = await cli('hub', 'push', 'anna/steps', '--model', run, '--dry-run');
    expect([code, stdout]).toEqual([0, expect.stringContaining('anna/steps, branch main:')]);
    const refused = [
      [[run], /^name the repository too: npx steptrain hub push \S+ owner\/name$/],
      [[run, 'anna/steps', '--model', run], /^name one run or adapter: /],
    ] as const;
    for (const [args, message] of refused)
      expect(await cli('hub', 'push', ...args)).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(message),
      });
  });

  it('sends again only what the storage has not, into a repository that is there', async () => {
    hub.refusals.set('/commit/', 503);
    const failed = await push();
    expect(failed.code).toBe(1);
    expect(failed.stderr).toMatch(
      /answers 503 \(refused for a test\) to the upload of anna\/steps; nothing was committed/,
    );
    const stored = hub.stored.size;
    expect((await push()).code).toBe(0);
    expect(hub.stored.size).toBe(stored);
    expect(hub.made).toHaveLength(1);
  });

  it.each<[string, () => void, RegExp]>([
    ['without a token', () => vi.stubEnv('HF_TOKEN', ''), /needs a token that may write: set HF_TOKEN/],
    [
      'with a token that may not write',
      () => vi.stubEnv('HF_TOKEN', 'hf_other'),
      /does not let this token write to anna\/steps/,
    ],
    ['offline', () => vi.stubEnv('HF_HUB_OFFLINE', '1'), /HF_HUB_OFFLINE is set/],
    [
      'a base that nobody else has',
      () => named('/home/anna/models/mine'),
      /which nobody else has; name it on the hub with --base owner\/name/,
    ],
    [
      'where there is no adapter',
      () => {
        run = join(run, 'nothing');
      },
      /neither a run directory nor an adapter directory/,
    ],
  ])('refuses in a sentence %s', async (_, prepare, message) => {
    prepare();
    const { code, stderr } = await push();
    expect(code).toBe(1);
    expect(stderr).toMatch(message);
    expect(stderr).not.toMatch(/hf_/);
    expect(hub.repositories.get('anna/steps') ?? {}).toEqual({});
  });

  it('refuses names that are none, and takes the base from an option', async () => {
    expect((await cli('hub', 'push', run, 'steps')).stderr).toMatch(/repo: expected owner\/name/);
    named('/home/anna/models/mine');
    const { stdout } = await push('--base', 'qwen/other', '--dry-run');
    expect(stdout).toContain('base_model: qwen/other');
  });
});
