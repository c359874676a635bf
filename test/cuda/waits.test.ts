// Training queues work for the GPU without waiting for it: the queue's thread waits only for reads. On the emulator
// other calls that may block the host are counted too.
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { parseRunConfig } from '../../src/methods/config.js';
import { runRecipe } from '../../src/methods/run.js';
import { createRunDirectory } from '../../src/run/directory.js';
import { Device } from '../../src/runtime/device.js';
import { EMULATED, gpus, skipped } from './gpu.js';

/** StepAMC on the embedded model, a few steps of each phase, solutions of one length. */
const RECIPE = `
method: stepamc
model: { base: embedded, dtype: bf16 }
lora: { r: 4, lora_alpha: 8, lora_dropout: 0.05 }
data:
  source: arithmetic
  max_length: 64
  arithmetic: { samples: 60, steps: 2, max_operand: 9 }
prompt: { template: compact, pos_word: '1', neg_word: '0' }
sft: { max_steps: 4, tokens_per_step: 128, micro_batch_tokens: 128, save_steps: 0 }
reward_network: { max_steps: 4, tokens_per_step: 128, micro_batch_tokens: 128, save_steps: 0 }
verdict_ppo: { max_iterations: 4, rollout_batch: 8, num_ppo_epochs: 1, micro_batch_tokens: 256, save_steps: 0 }
run: { device: cuda, logging_steps: 1 }
eval: { max_samples: 1 }
`;

/** Steps of a phase that load kernels and reserve memory. */
const WARM_UP = 2;

interface Moment {
  readonly phase: unknown;
  readonly reads: number;
  readonly waits: number;
  readonly calls: number;
}

describe.skipIf(gpus.length === 0)(`waits of training on cuda:0${skipped}`, () => {
  const moments: Moment[] = [];
  let folder: string;
  let trace: string;
  const calls = () => (existsSync(trace) ? readFileSync(trace, 'utf8').split('\n').slice(0, -1) : []);

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'steptrain-waits-'));
    trace = join(folder, 'calls');
    process.env.STEPTRAIN_EMULATED_TRACE = trace;
    let reads = 0;
    let device: Device | undefined;
    const read = Device.prototype.readHandle;
    vi.spyOn(Device.prototype, 'readHandle').mockImplementation(function (this: Device, handle) {
      device = this;
      reads++;
      return read.call(this, handle);
    });
    const synchronize = Device.prototype.synchronize;
    vi.spyOn(Device.prototype, 'synchronize').mockImplementation(function (this: Device) {
      reads++;
      return synchronize.call(this);
    });
    const run = await createRunDirectory(join(folder, 'run'), { onExisting: 'refuse' });
    const append = run.metrics.append;
    run.metrics.append = (line) => {
      append.call(run.metrics, line);
      if ('tokens_per_second' in line)
        moments.push({
          phase: line.phase,
          reads,
          waits: device?.stats().waits ?? 0,
          calls: calls().length,
        });
    };
    vi.spyOn(console, 'error').mockImplementation(() => undefined);
    const { config } = parseRunConfig(RECIPE, { name: 'waits.yaml' });
    await runRecipe(config, run, new AbortController().signal, { resume: false });
    await run.close();
  });
  afterAll(async () => {
    vi.restoreAllMocks();
    delete process.env.STEPTRAIN_EMULATED_TRACE;
    await rm(folder, { recursive: true, force: true });
  });

  describe.each(['sft', 'reward_network', 'ppo'])('%s', (phase) => {
    const steps = () => {
      const own = moments.filter((moment) => moment.phase === phase);
      return own.slice(WARM_UP).map((moment, i) => {
        const before = own[WARM_UP - 1 + i] as Moment;
        return {
          reads: moment.reads - before.reads,
          waits: moment.waits - before.waits,
          calls: calls().slice(before.calls, moment.calls),
        };
      });
    };

    it('never waits more often than it reads', () => {
      expect(steps().length).toBe(2);
      for (const { reads, waits } of steps()) {
        // What is read may be there already on a GPU; on the emulator it never is, so that the count is seen to count.
        if (gpus[0] === EMULATED) expect(waits).toBeGreaterThan(0);
        expect(reads).toBeGreaterThan(0);
        expect(waits).toBeLessThanOrEqual(reads);
      }
    });

    it.skipIf(gpus[0] !== EMULATED)('calls nothing else that may block the host', () => {
      for (const { waits, calls } of steps())
        expect(calls).toEqual(Array(waits).fill('cudaEventSynchronize'));
    });
  });
});
