// The trained parameters before the first step.
import { afterAll, expect, test } from 'vitest';
import { completeRunConfig } from '../../../src/methods/config.js';
import type { SftRunConfig } from '../../../src/methods/sft/config.js';
import { readWeight } from '../../../src/models/save.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { createTrainee } from '../../../src/train/roles/trainee.js';
import { goldenDirectory } from '../../models/golden.js';
import { openTest } from '../../ops/devices.js';

const device = openTest();
afterAll(() => device.dispose());

test('modules that are trained whole start with the values of the base', async () => {
  const { model, lora } = completeRunConfig({
    method: 'sft',
    model: { base: goldenDirectory('llama3'), dtype: 'f32' },
    lora: { r: 2, modules_to_save: ['lm_head', 'embed_tokens'] },
    data: { source: 'arithmetic' },
  }) as SftRunConfig;
  const options = { model, lora, tokenizer: byteTokenizer(), seed: 1, gradientCheckpointing: false };
  const { decoder, trained, dispose } = await createTrainee(device, options);
  for (const name of ['lm_head.weight', 'model.embed_tokens.weight']) {
    const own = trained.get(`base_model.model.${name}`);
    expect(await own?.value.readFloats(), name).toEqual(await readWeight(decoder, name));
  }
  dispose();
});
