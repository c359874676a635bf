// Rollouts of a server in several processes: rank 0 alone publishes and asks, and all train with the bits of one process.
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
// @ts-expect-error plain JavaScript
import { job } from '../../scripts/killed-jobs.mjs';
// @ts-expect-error plain JavaScript
import { contents, differences } from '../../scripts/killed-runs.mjs';
import { loadModel } from '../../src/api/model.js';
import { openDevice } from '../../src/runtime/device.js';
import { serve } from '../../src/serve/server.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { goldenDirectory } from '../models/golden.js';
import { faultyProxy } from '../remote/faulty-proxy.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { compiled } from './program.js';

test.skipIf(!compiled)(
  'a server is given the adapter once a round, whatever the number of processes (needs dist/: npm run build)',
  async () => {
    const folder = temporaryDirectory();
    const adapters = join(folder, 'adapters');
    mkdirSync(adapters);
    const device = openDevice('cpu', { threads: 1 });
    const model = await loadModel(device, goldenDirectory('llama3'));
    const server = await serve(
      { name: 'base', model, tokenizer: byteTokenizer() },
      { port: 0, cacheBytes: 32_000_000, adapterRoot: adapters },
    );
    const proxy = await faultyProxy(server.url, () => undefined);
    const recipe = join(folder, 'ppo.yaml');
    const config = {
      method: 'ppo',
      model: { base: goldenDirectory('llama3'), tokenizer: 'bytes', dtype: 'f32' },
      lora: { r: 4, lora_alpha: 8, lora_dropout: 0 },
      data: { source: 'word_problems', word_problems: { samples: 40, levels: [1] }, max_length: 250 },
      rollout: {
        ...{ num_generations: 3, max_new_tokens: 12, template: '{problem}\n', stop: ['ee'] },
        server: { url: proxy.url, adapters },
      },
      reward: { format: { weight: 1, pattern: '[a-m]' }, length: { weight: 0.1, from: 2, to: 12 } },
      ppo: { learning_rate: 1e-2, rollout_batch: 12, max_iterations: 3, critic_warmup: 0, save_steps: 1 },
      run: { device: 'cpu', threads: 1, logging_steps: 1, shards: 2 },
      eval: { max_samples: 2 },
    };
    writeFileSync(recipe, JSON.stringify(config));
    const found = [];
    const published = [];
    for (const size of [1, 2]) {
      const run = join(folder, `run-${size}`);
      const before = proxy.asked.length;
      const { ends } = await job(['run', recipe, '--output', run], size, { lost: 0 });
      for (const { code, said } of ends) expect(code, said).toBe(0);
      found.push(contents(run));
      published.push(proxy.asked.slice(before).filter((path) => path === '/v1/load_lora_adapter').length);
      expect(readdirSync(adapters)).toEqual([]);
    }
    await server.close(0);
    model.dispose();
    device.dispose();
    expect(published).toEqual([3, 3]);
    expect(Object.keys(found[0])).toContain('samples.jsonl');
    expect(differences(found[0], found[1])).toEqual([]);
  },
);
