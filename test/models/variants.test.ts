// Settings that the golden models leave out, against transformers in float64: logits and every gradient.
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { Tape } from '../../src/autograd/tape.js';
import { raggedBatch } from '../../src/models/batch.js';
import { loadTrainableDecoder } from '../../src/models/load.js';
import { nll } from '../../src/objectives/nll.js';
import { headLogits, headLogprobs } from '../../src/ops/head.js';
import { readStoredF32 } from '../../src/weights/checkpoint.js';
import { openSafetensors } from '../../src/weights/safetensors.js';
import { isas, openTest } from '../ops/devices.js';
import { maxDifference } from '../ops/numbers.js';
import { goldenPath } from '../weights/golden.js';
import { VARIANTS } from './golden.js';

describe.each(isas)('%s', (isa) => {
  const device = openTest(isa);
  afterAll(() => device.dispose());

  test.each(VARIANTS)('%s', async (name) => {
    const directory = goldenPath(`variants/${name}`);
    const file = openSafetensors(join(directory, 'expected.safetensors'));
    const expected = (tensor: string) => readStoredF32(file, tensor);
    const bytes = file.read('ids');
    const ids = [...new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4)];

    const { decoder, parameters } = loadTrainableDecoder(device, directory, { dtype: 'f32' });
    const batch = raggedBatch(device, [{ ids }], decoder.config);
    const tape = new Tape(device);
    const { logits, loss } = device.scope(() =>
      tape.run(() => {
        const hidden = decoder.forward(batch);
        const targets = device.tensor(Int32Array.from([...ids.slice(1), 0]));
        const share = Float32Array.from(ids, (_, t) => (t < ids.length - 1 ? 1 / (ids.length - 1) : 0));
        const { logprobs } = headLogprobs(hidden, decoder.head(), targets);
        return { logits: headLogits(hidden, decoder.head()), loss: nll(logprobs, device.tensor(share)) };
      }),
    );
    tape.backward([[loss, 1]]);
    expect(maxDifference(await logits.readFloats(), expected('logits'))).toBeLessThan(1e-4);
    expect(Math.abs((await loss.readFloats())[0]! - expected('loss')[0]!)).toBeLessThan(1e-5);

    const largest = (values: Float32Array) => values.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
    const names = [...file.tensors.keys()].filter((tensor) => tensor.startsWith('grad.'));
    expect(names).toHaveLength(parameters.list.length);
    const overall = Math.max(...names.map((tensor) => largest(expected(tensor))));
    for (const tensor of names) {
      const found = await parameters.get(tensor.slice('grad.'.length))!.grad!.readFloats();
      const bound = 1e-3 * largest(expected(tensor)) + 1e-7 * overall;
      expect(maxDifference(found, expected(tensor)), tensor).toBeLessThanOrEqual(bound);
    }
    file.close();
    for (const owned of [logits, loss, batch, tape, parameters, decoder]) owned.dispose();
  });

  test.each(VARIANTS)('%s generates what its forward scores', async (name) => {
    const model = await loadModel(device, goldenPath(`variants/${name}`), { dtype: 'f32' });
    const prompts = [[5, 9, 12, 30, 31, 32, 33, 36], [7]];
    const options = { temperature: 0, maxNewTokens: 12, ignoreEos: true };
    for (const [i, [sample]] of (await model.generate(prompts, options)).entries()) {
      const { tokens = [], logprobs = [] } = sample ?? {};
      const prompt = prompts[i] as number[];
      const [scored] = await model.score([[...prompt, ...tokens]]);
      const wanted = [...(scored?.logprobs ?? [])].slice(prompt.length - 1);
      expect(tokens).toHaveLength(12);
      expect(maxDifference([...logprobs], wanted)).toBeLessThan(1e-5);
    }
    model.dispose();
  });
});
