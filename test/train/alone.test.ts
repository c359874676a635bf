// A process that no launcher has started with others: it computes what a loop by hand does, and nothing of the exchange.
import { afterAll, expect, it, vi } from 'vitest';
import type { TrainableParameters } from '../../src/autograd/parameters.js';
import { Tape } from '../../src/autograd/tape.js';
import { joinJob } from '../../src/methods/job.js';
import { loadAdapter } from '../../src/models/adapter.js';
import { loadDecoder } from '../../src/models/load.js';
import { nll } from '../../src/objectives/nll.js';
import { processesOf } from '../../src/runtime/processes.js';
import { scoreRows } from '../../src/sequences/forward.js';
import type { ProgressPart } from '../../src/terminal/progress.js';
import { accumulate } from '../../src/train/accumulate.js';
import { AdamW } from '../../src/train/adamw.js';
import { dataParallel, divideBatches } from '../../src/train/sums/data-parallel.js';
import { expectedOf, goldenDirectory } from '../models/golden.js';
import { openTest } from '../ops/devices.js';

const device = openTest();
afterAll(() => device.dispose());

const OPTIONS = { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0.1, maxGradNorm: 0.5 };
const items = expectedOf('qwen2').sequences.map((ids, rowId) => ({
  sequence: { ids, positions: ids.map((_, t) => t), branch: undefined, rowId },
  rows: ids.slice(1).map((token, row) => ({ row, token })),
}));

it('joins nobody', async () => {
  expect(await joinJob({}, { PATH: '/bin', SLURM_NTASKS: '2', SLURM_PROCID: '0' })).toBe(undefined);
});

it('takes a step of the ops and bits of a loop without processes, and reads no gradient back', async () => {
  divideBatches(device, { shards: 1, zero: 2 });
  expect([dataParallel(device), processesOf(device)]).toEqual([undefined, undefined]);
  const directory = goldenDirectory('qwen2');
  const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
  const heard: unknown[] = [];
  const step = async (byHand: boolean) => {
    const adapter = loadAdapter(device, decoder.config, `${directory}/adapter`, { trainable: true });
    const parameters = adapter.trainable as TrainableParameters;
    const optimizer = new AdamW(parameters, OPTIONS);
    const loss = (group: typeof items) => {
      const { logprobs } = scoreRows(decoder, { adapter }, group);
      return { loss: nll(logprobs, device.tensor(new Float32Array(logprobs.size).fill(0.1))) };
    };
    await device.synchronize();
    const reads = vi.spyOn(parameters.grads, 'readFloats');
    const before = device.stats().ops;
    if (byHand) {
      parameters.zeroGrads();
      for (const item of items) {
        const tape = new Tape(device);
        const term = device.scope(() => tape.run(() => loss([item])));
        tape.backward([[term.loss, 1]]);
        tape.dispose();
        await term.loss.readFloats();
        term.loss.dispose();
      }
    } else {
      const sizeOf = ({ sequence }: (typeof items)[number]) => sequence.ids.length;
      const report = (part: ProgressPart) => void heard.push([part.done, part.total, part.tokens]);
      const more = { device, microBatchTokens: 1, sizeOf, normaliser: () => 1, trains: [parameters], report };
      await accumulate(items, more, (group) => [loss([...group])]);
    }
    await optimizer.step(1e-2);
    const ops = device.stats().ops - before;
    const bytes = Buffer.from((await parameters.values.readFloats()).buffer);
    expect(reads).not.toHaveBeenCalled();
    optimizer.dispose();
    adapter.dispose();
    return { ops, bits: bytes.toString('base64') };
  };
  expect(await step(false)).toEqual(await step(true));
  const sizes = items.map(({ sequence }) => sequence.ids.length);
  const upTo = (count: number) => sizes.slice(0, count).reduce((sum, size) => sum + size, 0);
  expect(heard).toEqual([0, ...items.map((_, i) => i + 1)].map((done) => [done, items.length, upTo(done)]));
  decoder.dispose();
});
