// A copy of all weights as a role: the bits of its base until it is trained, and the base is never touched.
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { withHead } from '../../src/models/adapter.js';
import { raggedBatch } from '../../src/models/batch.js';
import type { Decoder, Role } from '../../src/models/decoder.js';
import { headOutputs, headRows, roleHead } from '../../src/models/heads.js';
import { loadDecoder } from '../../src/models/load.js';
import { saveDecoder } from '../../src/models/save.js';
import { wholeCopy } from '../../src/models/whole-copy.js';
import { headLogits } from '../../src/ops/head.js';
import { openTest } from '../ops/devices.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { goldenDirectory } from './golden.js';

const device = openTest();
afterAll(() => device.dispose());

const SEQUENCES = [{ ids: [1, 2, 3, 4] }, { ids: [5, 6] }];

async function logits(decoder: Decoder, role: Role): Promise<Float32Array> {
  const found = device.scope(() => {
    const batch = raggedBatch(device, SEQUENCES, decoder.config);
    return device.keep(headLogits(decoder.forward(batch, role), decoder.head(role)));
  });
  const values = await found.readFloats();
  found.dispose();
  return values;
}

describe.each(['qwen2', 'llama3', 'opt', 'variants/qwen3-moe'])('%s', (name) => {
  test('reads as the base does, and once changed as what is saved of it; the base stays', async () => {
    const decoder = await loadDecoder(device, goldenDirectory(name), { dtype: 'f32' });
    const copy = await wholeCopy(decoder, { seed: 1 });
    const role = { adapter: copy };
    const before = await logits(decoder, {});
    expect(await logits(decoder, role)).toEqual(before);

    const { values } = copy.trainable!;
    copy.trainable!.write((await values.readFloats()).map((value, i) => value + 0.01 * Math.sin(i)));
    const changed = await logits(decoder, role);
    expect(changed).not.toEqual(before);
    expect(await logits(decoder, {})).toEqual(before);

    const directory = join(temporaryDirectory(), 'copy');
    await saveDecoder(decoder, directory, { role });
    const loaded = await loadDecoder(device, directory, { dtype: 'f32' });
    expect(await logits(loaded, {})).toEqual(changed);
    for (const item of [loaded, copy, decoder]) item.dispose();
  });

  test('under a scalar head it is saved as a classifier', async () => {
    const decoder = await loadDecoder(device, goldenDirectory(name), { dtype: 'f32' });
    const model = withHead(decoder.config, { kind: 'sequence', numLabels: 1, bias: false });
    const copy = await wholeCopy(decoder, { seed: 7, model });
    const role = { adapter: copy };
    const rewards = async (of: Decoder, as: Role) => {
      const found = device.scope(() => {
        const batch = raggedBatch(device, SEQUENCES, of.config);
        const head = roleHead(of, as)!;
        return device.keep(headOutputs(of.forward(batch, as), head, headRows(device, batch, head)));
      });
      const values = await found.readFloats();
      found.dispose();
      return values;
    };
    const expected = await rewards(decoder, role);
    expect(expected).toHaveLength(2);
    expect(expected[0]).not.toBe(expected[1]);
    const directory = join(temporaryDirectory(), 'reward');
    await saveDecoder(decoder, directory, { role, model });
    const loaded = await loadDecoder(device, directory, { dtype: 'f32' });
    expect(await rewards(loaded, {})).toEqual(expected);
    for (const item of [loaded, copy, decoder]) item.dispose();
  });
});
