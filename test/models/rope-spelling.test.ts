// The older spelling of a configuration (rope_theta, rope_scaling, torch_dtype) is the same model, bit by bit.
import { afterAll, expect, test } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import type { LlamaConfig } from '../../src/architectures/llama-config.js';
import type { Decoder } from '../../src/models/decoder.js';
import { openTest } from '../ops/devices.js';
import { changedModel } from './changed-model.js';
import { expectedOf, goldenDirectory } from './golden.js';

const device = openTest();
afterAll(() => device.dispose());

/** The spelling of transformers 4; `typeKey` is `type` or, later, `rope_type`. */
function older(config: Record<string, unknown>, typeKey: 'type' | 'rope_type'): Record<string, unknown> {
  const { rope_parameters, dtype, ...rest } = config as {
    rope_parameters: { rope_type: string; rope_theta: number };
    dtype: string;
  };
  const { rope_theta, rope_type, ...scaling } = rope_parameters;
  return {
    ...rest,
    rope_theta,
    rope_scaling: rope_type === 'default' ? null : { ...scaling, [typeKey]: rope_type },
    torch_dtype: dtype,
  };
}

test.each(
  ['qwen2', 'qwen3', 'llama3', 'mistral', 'stories260k'].flatMap((name) => [
    [name, 'type'] as const,
    [name, 'rope_type'] as const,
  ]),
)('%s with %s', async (name, typeKey) => {
  const sequences =
    name === 'stories260k'
      ? [(expectedOf(name) as unknown as { greedy: number[] }).greedy]
      : expectedOf(name).sequences;
  const directory = await changedModel(name, {
    config: (config) => {
      const changed = older(config, typeKey);
      expect(changed).not.toHaveProperty('rope_parameters');
      if (name === 'llama3') expect(changed.rope_scaling).toMatchObject({ [typeKey]: 'llama3', factor: 8 });
      return changed;
    },
  });
  const [newer, rewritten] = [
    await loadModel(device, goldenDirectory(name), { dtype: 'f32' }),
    await loadModel(device, directory, { dtype: 'f32' }),
  ];
  const rope = ({ config }: Decoder) => (config as LlamaConfig).rope;
  expect(rope(rewritten.decoder)).toEqual(rope(newer.decoder));
  expect(rewritten.decoder.config.dtype).toBe('float32');
  expect(await rewritten.score(sequences)).toEqual(await newer.score(sequences));
  newer.dispose();
  rewritten.dispose();
});

test('another theta gives other results', async () => {
  const change = (config: Record<string, unknown>) => ({ ...older(config, 'type'), rope_theta: 500 });
  const directory = await changedModel('llama3', { config: change });
  const [golden, other] = [
    await loadModel(device, goldenDirectory('llama3'), { dtype: 'f32' }),
    await loadModel(device, directory, { dtype: 'f32' }),
  ];
  const { sequences } = expectedOf('llama3');
  expect(await other.score(sequences)).not.toEqual(await golden.score(sequences));
  golden.dispose();
  other.dispose();
});
