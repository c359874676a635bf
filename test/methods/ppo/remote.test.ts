// Rollouts of a server: the bits of a run that samples in its own process, and a sentence where nobody answers.
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { loadModel, type Model } from '../../../src/api/model.js';
import { completeRunConfig } from '../../../src/methods/config.js';
import { resume, train } from '../../../src/methods/run.js';
import { type Device, openDevice } from '../../../src/runtime/device.js';
import { type RunningServer, serve } from '../../../src/serve/server.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { metrics, tensors } from '../../e2e/program.js';
import { goldenDirectory } from '../../models/golden.js';
import { faultyProxy } from '../../remote/faulty-proxy.js';
import { remoteConfig } from './remote-config.js';

let folder: string;
let device: Device;
let model: Model;
let server: RunningServer;
const at = (...names: string[]) => join(folder, ...names);

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-rollout-server-'));
  mkdirSync(at('adapters'));
  device = openDevice('cpu', { threads: 1 });
  model = await loadModel(device, goldenDirectory('llama3'));
  server = await serve(
    { name: 'base', model, tokenizer: byteTokenizer() },
    { port: 0, cacheBytes: 32_000_000, adapterRoot: at('adapters') },
  );
});
afterAll(async () => {
  await server.close(0);
  model.dispose();
  device.dispose();
  rmSync(folder, { recursive: true, force: true });
});

const config = (rollout: object = {}, ppo: object = {}) =>
  remoteConfig({ r: 4, lora_alpha: 8, lora_dropout: 0 }, rollout, {
    load_best_model_at_end: false,
    save_steps: 1,
    ...ppo,
  });

async function run(name: string, rollout: object = {}, ppo: object = {}) {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  try {
    await train(config(rollout, ppo) as never, { output: at(name) });
  } finally {
    said.mockRestore();
  }
}

const remote = (url: string, more: object = {}) => ({ server: { url, adapters: at('adapters'), ...more } });

const adapter = (name: string) => tensors(at(name, 'adapter', 'adapter_model.safetensors'));

describe('rollout.server', () => {
  it('trains with the bits of a run that samples itself, on the policy as it is in each iteration', async () => {
    const warned: Error[] = [];
    const listen = (warning: Error) => warned.push(warning);
    process.on('warning', listen);
    await run('local');
    await run('remote', remote(server.url));
    process.off('warning', listen);
    expect(warned.map(({ name }) => name)).not.toContain('MaxListenersExceededWarning');
    expect(adapter('remote')).toEqual(adapter('local'));
    const samples = (name: string) => readFileSync(at(name, 'samples.jsonl'), 'utf8');
    expect(samples('remote')).toBe(samples('local'));
    expect(samples('local').trim().split('\n')).toHaveLength(6);
    const steps = (await metrics(at('remote'))).filter(({ loss }) => loss !== undefined);
    expect(steps).toHaveLength(3);
    expect(steps.map(({ sampler_difference }) => sampler_difference)).toEqual(
      steps.map(() => expect.closeTo(0, 5)),
    );
    // What was published is taken back at the end.
    await expect.poll(() => readdirSync(at('adapters'))).toEqual([]);
  });

  it('says in one sentence that nobody answers, and the run goes on where it was', async () => {
    let dead = false;
    let mended = false;
    const proxy = await faultyProxy(server.url, (_request, path) => {
      // After the first iteration.
      if (path === '/v1/unload_lora_adapter' && !mended) dead = true;
      return dead && path === '/v1/completions' ? 'refused connection' : undefined;
    });
    const rollout = remote(proxy.url, { attempts: 2 });
    await expect(run('broken', rollout)).rejects.toThrow(
      /^rollout\.server: prompt \d+ failed 2 times; .*; when the server is there again, go on with: npx steptrain run --resume .*broken$/,
    );
    expect(existsSync(at('broken', 'adapter'))).toBe(false);
    dead = false;
    mended = true;
    const said = vi.spyOn(console, 'error').mockImplementation(() => {});
    await resume(at('broken'));
    expect(said.mock.calls.flat().join('\n')).toMatch(/from the checkpoint of step [34]: ppo step [12]/);
    said.mockRestore();
    expect(adapter('broken')).toEqual(adapter('local'));
  });

  it('gives a server that was started anew the adapter before the first samples of a resumed run', async () => {
    const started = () =>
      serve(
        { name: 'base', model, tokenizer: byteTokenizer() },
        { port: 0, cacheBytes: 32_000_000, adapterRoot: at('adapters') },
      );
    const servers = [await started(), await started()] as const;
    let [lost, restarted] = [false, false];
    const proxy = await faultyProxy(
      () => servers[restarted ? 1 : 0].url,
      // The first of them goes after the first iteration.
      (_request, path) => {
        if (path === '/v1/unload_lora_adapter' && !restarted) lost = true;
        return lost && !restarted ? 'refused connection' : undefined;
      },
    );
    await expect(run('restarted', remote(proxy.url, { attempts: 1 }))).rejects.toThrow(/^rollout\.server: /);
    await servers[0].close(0);
    restarted = true;
    const before = proxy.asked.length;
    const said = vi.spyOn(console, 'error').mockImplementation(() => {});
    await resume(at('restarted'));
    said.mockRestore();
    const [first] = proxy.asked.slice(before).filter((path) => /load_lora_adapter|completions/.test(path));
    expect(first).toBe('/v1/load_lora_adapter');
    expect(adapter('restarted')).toEqual(adapter('local'));
    await servers[1].close(0);
  });

  it('refuses the first batch of a server that says it has an adapter and samples without it', async () => {
    const proxy = await faultyProxy(server.url, (_request, path) =>
      path === '/v1/completions' ? 'ignored adapter' : undefined,
    );
    await expect(run('ignored', remote(proxy.url, { max_difference: 0.01 }))).rejects.toThrow(
      /^rollout\.server: the log-probs of its samples differ by 0\.\d+ nats a token from those of the policy, more than rollout\.server\.max_difference 0\.01: .* --resume, or raise the key$/,
    );
    // The adapter that a run begins with changes nothing: the one of the second batch does, and nothing is learned from that.
    const steps = (await metrics(at('ignored'))).filter(({ loss }) => loss !== undefined);
    expect(steps).toHaveLength(1);
    expect(existsSync(at('ignored', 'adapter'))).toBe(false);
  });

  it('draws rollout batches ahead from the policy as it was, corrects for it, and says how old they are', async () => {
    const stale = (url: string) => remote(url, { max_staleness: 1 });
    const still = { learning_rate: 1e-30 };
    const proxy = await faultyProxy(server.url, () => undefined);
    await run('stale', stale(proxy.url));
    await run('stale-again', stale(server.url));
    await run('still', {}, still);
    expect(adapter('stale')).toEqual(adapter('stale-again'));
    const texts = (name: string) => {
      const rows = readFileSync(at(name, 'samples.jsonl'), 'utf8').trim().split('\n');
      return rows.map((row) => JSON.parse(row).solutions.map(({ text }: { text: string }) => text));
    };
    // Two problems of an iteration are shown. Those of the second come from the policy before the first update, those of the third do not.
    expect(texts('stale').slice(0, 4)).toEqual(texts('still').slice(0, 4));
    expect(texts('stale').slice(4)).not.toEqual(texts('still').slice(4));
    const steps = (await metrics(at('stale'))).filter(({ loss }) => loss !== undefined);
    expect(steps.map(({ staleness }) => staleness)).toEqual([0, 1, 1]);
    expect(steps[0]!.ratio_max).toBeCloseTo(1, 4);
    for (const { ratio_max, sampler_difference } of steps.slice(1)) {
      expect(ratio_max).toBeGreaterThan(1.01);
      expect(sampler_difference).toBeGreaterThan(1e-3);
    }
    // The last batch is asked for before the second is learned from: three adapters for three batches, the first of them twice.
    expect(proxy.asked.filter((path) => path === '/v1/load_lora_adapter')).toHaveLength(3);
    await expect.poll(() => readdirSync(at('adapters'))).toEqual([]);
  });

  it('corrects for batches drawn ahead by the ratio of the policy to the one that drew them', async () => {
    await run('stale-corrected', remote(server.url, { max_staleness: 1 }), {
      old_logprobs: 'rescore',
      importance_sampling_mode: 'token_truncate',
      importance_sampling_clip_max: 1.1,
    });
    const steps = (await metrics(at('stale-corrected'))).filter(({ loss }) => loss !== undefined);
    expect(steps.map(({ staleness }) => staleness)).toEqual([0, 1, 1]);
    expect(steps[0]!.importance_ratio_mean).toBeCloseTo(1, 4);
    expect(steps[0]!.importance_ratio_outside).toBe(0);
    for (const { ratio_max, importance_ratio_max, importance_ratio_min, ...step } of steps.slice(1)) {
      expect(step.importance_ratio_outside).toBeGreaterThan(0);
      expect(importance_ratio_max).toBeCloseTo(1.1, 6);
      expect(importance_ratio_min).toBeLessThan(0.999);
      expect(step.sampler_difference_max).toBeGreaterThanOrEqual(step.sampler_difference as number);
      // The ratio of the update itself is to the policy of now.
      expect(ratio_max).toBeCloseTo(1, 6);
    }
  }, 60_000);

  it.each([
    [
      { old_logprobs: 'rescore', importance_sampling_correction: false },
      /max_staleness .* set ppo\.importance_sampling_correction to true, or ppo\.old_logprobs to "sampler", found false and "rescore"/,
    ],
    [
      { algorithm: 'dapo' },
      /max_staleness .* set ppo\.resample_equal to 0, found auto for ppo\.algorithm "dapo"/,
    ],
  ])('refuses to draw ahead with %j', (ppo, sentence) => {
    const rollout = remote('http://127.0.0.1:1', { max_staleness: 2 });
    expect(() => completeRunConfig(config(rollout, ppo) as never)).toThrow(sentence);
    expect(() => completeRunConfig(config({ ...remote('http://127.0.0.1:1') }, ppo) as never)).not.toThrow();
  });

  it.each([
    [{ lora: 'none' }, {}, /steptrain serve takes the policy as an adapter alone/],
    [{}, { temperature: 0.7 }, /gives log-probs at temperature 1 alone; .* found 0\.7/],
  ])('refuses %j %j', (changes, rollout, sentence) => {
    const asked = { ...config({ ...remote('http://127.0.0.1:1'), ...rollout }), ...changes };
    expect(() => completeRunConfig(asked as never)).toThrow(sentence);
  });
});
