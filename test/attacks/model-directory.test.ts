/** Hostile model and adapter directories: index files, configurations, adapter configurations. */

import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { LlamaConfig } from '../../src/architectures/llama-config.js';
import { ropeTable } from '../../src/architectures/rope.js';
import { modelModules, parseModelConfig, readModelConfig } from '../../src/architectures/table.js';
import { openAdapter } from '../../src/weights/adapter.js';
import { parseAdapterConfig } from '../../src/weights/adapter-config.js';
import { INDEX_FILE, openCheckpoint } from '../../src/weights/checkpoint.js';
import { WeightsError } from '../../src/weights/error.js';
import { type JsonObject, parseJson } from '../../src/weights/json.js';
import { loraPlan } from '../../src/weights/lora-plan.js';
import { BY_TYPE } from '../models/golden.js';
import { goldenPath } from '../weights/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

/** Passes if `use` works, or if it fails with an error of this package that names the file. */
function survives(use: () => void, where: string): void {
  try {
    use();
  } catch (error) {
    if (!(error instanceof WeightsError)) throw error;
    expect(error.message).toContain(where);
    expect(error.message.length).toBeLessThan(3000);
  }
}

/** Replaces, adds or removes keys anywhere in an object. */
const hostileValue = fc.oneof(
  fc.jsonValue({ maxDepth: 3 }),
  fc.constantFrom<unknown>(
    -1,
    0,
    1,
    0.5,
    2 ** 31,
    2 ** 53,
    1e308,
    -0,
    '',
    'x',
    true,
    false,
    null,
    [],
    {},
    [[]],
    [null],
    ['(a+)+$'],
    '../../etc/passwd',
  ),
);
const mutated = (good: object) =>
  fc
    .array(fc.tuple(fc.oneof(fc.constantFrom(...Object.keys(good)), fc.string()), hostileValue), {
      minLength: 1,
      maxLength: 3,
    })
    .map((edits) => JSON.parse(JSON.stringify({ ...good, ...Object.fromEntries(edits) })) as JsonObject);

describe('a hostile index', () => {
  const openWith = (index: string) => {
    const directory = join(temporaryDirectory(), 'model');
    mkdirSync(directory);
    copyFileSync(goldenPath('qwen2/model.safetensors'), join(directory, '..', 'outside.safetensors'));
    writeFileSync(join(directory, INDEX_FILE), index);
    openCheckpoint(directory).close();
  };

  it.each([
    ['a path upwards', '../outside.safetensors'],
    ['an absolute path', '/etc/passwd'],
    ['a path downwards', 'sub/x.safetensors'],
    ['a path with backslashes', '..\\outside.safetensors'],
    ['a NUL', 'x.safetensors\0'],
    ['a newline', 'x.safetensors\n'],
    ['another kind of file', 'weights.bin'],
    ['the directory itself', '.'],
    ['a hidden file', '.safetensors'],
    ['nothing', ''],
    ['a number', 3],
    ['an object', {}],
  ])('is refused if it leads to %s', (_, file) => {
    expect(() => openWith(JSON.stringify({ weight_map: { 'model.norm.weight': file } }))).toThrow(
      /model\.safetensors\.index\.json: weight_map: model\.norm\.weight: expected the name of a \.safetensors file in the same directory, found/,
    );
  });

  it.each([
    ['no map', '{}', /weight_map: expected an object, found nothing/],
    ['a map that is a list', '{"weight_map": []}', /weight_map: expected an object, found \[\]/],
    ['an empty map', '{"weight_map": {}}', /weight_map: expected at least one weight/],
    [
      'a weight given twice',
      '{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}',
      /the name "a" occurs twice/,
    ],
    ['a list', '[]', /expected a JSON object at the top level/],
    ['half a file', '{"weight_map": {"a": "x.saf', /the string that begins here has no end/],
    ['nothing', '', /line 1, column 1: expected a JSON value, found the end/],
    ['nesting without end', '{"weight_map":'.repeat(10_000), /at most 64 levels/],
  ])('is refused if it has %s', (_, index, message) => {
    expect(() => openWith(index)).toThrow(message);
  });
});

describe('a hostile config.json', () => {
  it.each([
    ['that is not UTF-8', Buffer.from('ff', 'hex'), /expected UTF-8 text/],
    ['that is a list', Buffer.from('[1]'), /expected a JSON object at the top level/],
    ['with a comment', Buffer.from('{// no\n}'), /line 1, column 2: expected a name in double quotes/],
    ['with a comma too many', Buffer.from('{"a": 1,}'), /expected a name in double quotes/],
    ['with NaN', Buffer.from('{"rms_norm_eps": NaN}'), /expected a JSON value, found "NaN/],
    ['with Infinity', Buffer.from('{"rope_theta": Infinity}'), /expected a JSON value, found "Infinity/],
    ['with a leading zero', Buffer.from('{"hidden_size": 064}'), /expected ',' or '\}'/],
    ['with a bad escape', Buffer.from('{"a": "\\x41"}'), /bad escape/],
    ['with a byte-order mark', Buffer.from('\ufeff{}'), /expected a JSON value/],
  ])('%s', (_, bytes, message) => {
    const directory = temporaryDirectory();
    writeFileSync(join(directory, 'config.json'), bytes);
    expect(() => readModelConfig(directory)).toThrow(WeightsError);
    expect(() => readModelConfig(directory)).toThrow(message);
  });

  it('is refused if larger than any configuration', () => {
    const directory = temporaryDirectory();
    writeFileSync(join(directory, 'config.json'), Buffer.alloc(33 * 1024 * 1024, ' '));
    expect(() => readModelConfig(directory)).toThrow(/expected at most 33554432 bytes, found 34603008/);
  });

  it.each([...BY_TYPE.values()])('is any mutation of a good one: %s', (model) => {
    const good = JSON.parse(readFileSync(goldenPath(`${model}/config.json`), 'utf8'));
    fc.assert(
      fc.property(mutated(good), (json) => {
        survives(() => {
          const config = parseModelConfig(json, 'config.json');
          modelModules(config);
          const { rope } = config as LlamaConfig;
          if (rope?.headDim < 10_000) {
            const { cos, sin } = ropeTable(rope, 2);
            expect([...cos, ...sin].every(Number.isFinite)).toBe(true);
          }
        }, 'config.json');
      }),
      { numRuns: 400, seed: 2 },
    );
  });

  it('gives an error of ours or works under any mutation of its rotary settings', () => {
    const good = {
      rope_type: 'yarn',
      rope_theta: 1e4,
      factor: 4,
      beta_fast: 32,
      beta_slow: 1,
      attention_factor: 1,
      mscale: 1,
      mscale_all_dim: 1,
      truncate: false,
      original_max_position_embeddings: 16,
      low_freq_factor: 1,
      high_freq_factor: 4,
    };
    const base = JSON.parse(readFileSync(goldenPath('llama3/config.json'), 'utf8'));
    const type = fc.constantFrom('default', 'linear', 'dynamic', 'yarn', 'llama3', 'longrope');
    fc.assert(
      fc.property(mutated(good), type, fc.subarray(Object.keys(good)), (settings, rope_type, dropped) => {
        const kept = Object.fromEntries(
          Object.entries({ ...settings, rope_type }).filter(
            ([key]) => key === 'rope_type' || !dropped.includes(key),
          ),
        );
        survives(() => {
          const { rope } = parseModelConfig({ ...base, rope_parameters: kept }, 'config.json') as LlamaConfig;
          const { cos, sin } = ropeTable(rope, 2);
          expect([...cos, ...sin].every(Number.isFinite)).toBe(true);
        }, 'config.json');
      }),
      { numRuns: 2000, seed: 3 },
    );
  });
});

describe('a hostile adapter', () => {
  const good = JSON.parse(readFileSync(goldenPath('qwen2/adapter/adapter_config.json'), 'utf8'));
  const modules = modelModules(readModelConfig(goldenPath('qwen2')));

  it('gives an error of ours or works under any mutation', () => {
    fc.assert(
      fc.property(mutated(good), (json) => {
        survives(() => {
          loraPlan(parseAdapterConfig(json, 'adapter_config.json'), modules, {
            where: 'adapter_config.json',
          });
        }, 'adapter_config.json');
      }),
      { numRuns: 1000, seed: 4 },
    );
  });

  it('may have any text as a pattern', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom(...'ab.*+?()[]{},|\\^$09<=!:PZ'.split('')), maxLength: 12 }),
        (pattern) => {
          const json = {
            ...good,
            target_modules: pattern,
            rank_pattern: { [pattern]: 2 },
            exclude_modules: pattern,
          };
          survives(() => {
            loraPlan(parseAdapterConfig(json, 'adapter_config.json'), modules, {
              where: 'adapter_config.json',
            });
          }, 'adapter_config.json');
        },
      ),
      { numRuns: 400, seed: 5 },
    );
  });

  it('is refused with a huge rank that its tensors do not have', () => {
    const directory = temporaryDirectory();
    copyFileSync(
      goldenPath('qwen2/adapter/adapter_model.safetensors'),
      join(directory, 'adapter_model.safetensors'),
    );
    writeFileSync(join(directory, 'adapter_config.json'), JSON.stringify({ ...good, r: 2 ** 31 - 1 }));
    expect(() => openAdapter(directory, modules)).toThrow(/expected shape \[2147483647,64\], found \[4,64\]/);
  });
});

describe('parseJson', () => {
  it('returns what JSON.parse returns, and refuses every text that JSON.parse refuses', () => {
    const plain = (value: unknown) => JSON.stringify(value);
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6 }), (value) => {
        const text = JSON.stringify(value, undefined, 1);
        expect(plain(parseJson(text, 'x'))).toBe(plain(JSON.parse(text)));
      }),
      { numRuns: 1000, seed: 6 },
    );
    fc.assert(
      fc.property(
        fc.string({
          unit: fc.constantFrom(...'{}[]":,0.-1eE+ tfn\\u\n'.split(''), 'true', 'null', '"a"'),
          maxLength: 12,
        }),
        (text) => {
          let expected: string | undefined;
          try {
            expected = plain(JSON.parse(text));
          } catch {}
          if (expected === undefined) expect(() => parseJson(text, 'x')).toThrow(WeightsError);
          else survives(() => expect(plain(parseJson(text, 'x'))).toBe(expected), 'x');
        },
      ),
      { numRuns: 5000, seed: 7 },
    );
  });
});
