import { describe, expect, it } from 'vitest';
import { completeRunConfig } from '../../src/methods/config.js';
import { configuredTokenizer } from '../../src/run/tokenizer.js';
import { sharedPath } from '../shared.js';

const model = (section: Record<string, unknown> = {}) =>
  completeRunConfig({ method: 'sft', data: { source: 'arithmetic' }, model: section }).model;

describe('the tokenizer of a configuration', () => {
  it('is the byte tokenizer for the embedded base', async () => {
    const tokenizer = await configuredTokenizer(model());
    expect(tokenizer.encode('7+5', { addSpecialTokens: false })).toEqual([55, 43, 53]);
  });

  const qwen = sharedPath('data/tokenizers/qwen2_5');
  it.skipIf(!qwen)('is read from a directory', async () => {
    const init = { hidden_size: 8, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 1 };
    const section = model({ base: { init }, tokenizer: qwen });
    const tokenizer = await configuredTokenizer(section);
    expect(tokenizer.decode(tokenizer.encode('Let x = 3.'))).toBe('Let x = 3.');
  });
});
