import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { CHANGEABLE } from '../../src/config/changeable.js';
import { expectation, keysOf, methodOutline, type Outline, sectionOf } from '../../src/config/outline.js';
import { optimization } from '../../src/config/training.js';
import { completeRunConfig, formatRunConfig, parseRunConfig } from '../../src/methods/config.js';
import { methods } from '../../src/methods/table.js';
import { grouped } from '../../src/native/grouped.js';

const { pageWriter } = await import(
  new URL('../../scripts/docs/configuration-page.mjs', import.meta.url).href
);

describe('the written configuration', () => {
  const config = completeRunConfig({
    method: 'sft',
    model: {
      base: {
        init: { hidden_size: 64, intermediate_size: 96, num_hidden_layers: 1, num_attention_heads: 4 },
      },
      tokenizer: 'bytes',
    },
    lora: { r: 4, target_modules: ['q_proj', 'v_proj'], rank_pattern: { 'layers.0.q_proj': 2 } },
    data: { source: 'arithmetic', split: [6, 2, 2] },
  });

  it('is read back as the same configuration', () => {
    expect(parseRunConfig(formatRunConfig(config), { name: 'config.yaml' }).config).toEqual(config);
  });

  it('keeps any text', () => {
    const word = fc.string({ minLength: 1, unit: 'binary' }).filter((text) => text.trim() !== '-');
    fc.assert(
      fc.property(word, fc.string({ minLength: 1 }), (pos, folder) => {
        const input = {
          method: 'sft',
          data: { train: `x${folder}` },
          prompt: { pos_word: pos, neg_word: '-' },
          run: { output_dir: folder },
        };
        const complete = completeRunConfig(input);
        expect(parseRunConfig(formatRunConfig(complete), { name: 'config.yaml' }).config).toEqual(complete);
      }),
    );
  });

  it('explains every key, in lines that fit', () => {
    const lines = formatRunConfig(config, { head: 'Merged by steptrain.' }).split('\n');
    expect(lines[0]).toBe('# Merged by steptrain.');
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(120);
    expect(lines).toContain('  target_modules: [q_proj, v_proj]');
    const at = lines.findIndex((line) => line.startsWith('  lora_dropout:'));
    expect(lines[at - 1]).toBe(
      '  # Dropout on the input of the adapters, but where log-probs are compared, as in TRL; 0 is faster.',
    );
  });
});

describe('the configuration page', () => {
  it('matches the schema', () => {
    const source = { CHANGEABLE, expectation, grouped, methodOutline, optimization, sectionOf };
    const page = readFileSync(new URL('../../docs/reference/configuration.md', import.meta.url), 'utf8');
    expect(page, 'run: npm run build && node scripts/config-docs.mjs').toBe(pageWriter(source)(methods));
  });

  it.each(Object.entries(methods))('has a description and a type for every key of %s', (_, method) => {
    const visit = (node: Outline, path: string) => {
      for (const key of keysOf(node)) {
        const child = sectionOf(node)!.properties![key]!;
        expect(child.description, `${path}${key}`).toMatch(/\S.*\.$/s);
        visit(child, `${path}${key}.`);
      }
    };
    visit(methodOutline(method), '');
  });
});
