import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { LlamaConfig } from '../../src/architectures/llama-config.js';
import {
  parseRope,
  type RopeConfig,
  ropeFrequencies,
  ropeJson,
  ropeTable,
} from '../../src/architectures/rope.js';
import { parseModelConfig } from '../../src/architectures/table.js';
import { Fields } from '../../src/weights/fields.js';
import type { JsonObject } from '../../src/weights/json.js';

interface Case {
  readonly name: string;
  readonly config: JsonObject;
  readonly inv_freq: readonly number[];
  readonly attention_scaling: number;
  readonly positions: readonly number[];
  readonly cos: readonly number[];
  readonly sin: readonly number[];
}

const cases: readonly Case[] = JSON.parse(
  readFileSync(new URL('../golden/rope.json', import.meta.url), 'utf8'),
);
const bits = (values: Float32Array) => [...new Int32Array(values.buffer, values.byteOffset, values.length)];
const floats = (patterns: readonly number[]) => new Float32Array(Int32Array.from(patterns).buffer);
const parse = (json: JsonObject, headDim = 16, maxPositions = 512) =>
  parseRope(new Fields(json, 'config.json'), headDim, maxPositions);

describe.each(cases)('the rotary settings of transformers: $name', (golden) => {
  const { rope } = parseModelConfig(golden.config, 'config.json') as LlamaConfig;

  it('give the same frequencies, bit for bit', () => {
    const { inverse, attentionScaling } = ropeFrequencies(rope);
    expect(bits(inverse)).toEqual(golden.inv_freq);
    expect(attentionScaling).toBeCloseTo(golden.attention_scaling, 14);
  });

  it('give the same cos and sin within two units in the last place', () => {
    const half = golden.inv_freq.length;
    const table = ropeTable(rope, Math.max(...golden.positions) + 1);
    for (const [row, position] of golden.positions.entries()) {
      for (const which of ['cos', 'sin'] as const) {
        const expected = floats(golden[which].slice(row * half, (row + 1) * half));
        const found = table[which].subarray(position * half, (position + 1) * half);
        for (let i = 0; i < half; i++) {
          expect(Math.abs(found[i]! - expected[i]!), `${which} at ${position}, ${i}`).toBeLessThanOrEqual(
            Math.abs(expected[i]!) * 2 ** -22,
          );
        }
      }
    }
  });

  it('are read back equal from the newer spelling', () => {
    const again = parseRope(
      new Fields({ rope_parameters: ropeJson(rope) }, 'config.json'),
      rope.headDim,
      golden.config.max_position_embeddings as number,
    );
    expect(again).toEqual(rope);
  });
});

describe('ropeTable', () => {
  it('has one row per position and headDim / 2 columns', () => {
    const { cos, sin } = ropeTable({ headDim: 4, theta: 10_000, scaling: { type: 'default' } }, 3);
    expect([cos.length, sin.length]).toEqual([6, 6]);
    expect([...cos.subarray(0, 2), ...sin.subarray(0, 2)]).toEqual([1, 1, 0, 0]);
    expect(sin[2]).toBeCloseTo(Math.sin(1), 7);
    expect(sin[5]).toBeCloseTo(Math.sin(0.02), 7);
  });

  it('refuses dynamic scaling beyond the trained length only', () => {
    const rope: RopeConfig = {
      headDim: 4,
      theta: 10_000,
      scaling: { type: 'dynamic', factor: 2, maxPositions: 8 },
    };
    expect(ropeTable(rope, 8)).toEqual(ropeTable({ ...rope, scaling: { type: 'default' } }, 8));
    expect(() => ropeTable(rope, 9)).toThrow(/at most 8 positions, found 9/);
  });
});

describe('parseRope', () => {
  it('reads the same settings from both spellings', () => {
    const yarn = { factor: 4, original_max_position_embeddings: 128 };
    const modern = parse({ rope_parameters: { rope_type: 'yarn', rope_theta: 1e6, ...yarn } });
    expect(modern.theta).toBe(1e6);
    expect(parse({ rope_theta: 1e6, rope_scaling: { type: 'yarn', ...yarn } })).toEqual(modern);
    expect(parse({ rope_theta: 1e6, rope_scaling: { rope_type: 'yarn', type: 'yarn', ...yarn } })).toEqual(
      modern,
    );
    expect(
      parse({ rope_theta: 1e6, rope_parameters: { rope_type: 'yarn', ...yarn }, rope_scaling: null }),
    ).toEqual(modern);
    expect(parse({ rope_theta: 1e6, rope_scaling: {} })).toEqual({
      headDim: 16,
      theta: 1e6,
      scaling: { type: 'default' },
    });
    expect(parse({})).toEqual({ headDim: 16, theta: 10_000, scaling: { type: 'default' } });
  });

  it.each<[string, JsonObject, RegExp]>([
    [
      'longrope',
      { rope_scaling: { type: 'longrope', short_factor: [1], long_factor: [1] } },
      /rope_type: expected one of .*found "longrope"/,
    ],
    ['a type of another model', { rope_scaling: { type: 'mrope', mrope_section: [1] } }, /found "mrope"/],
    [
      'a type that is no string',
      { rope_parameters: { rope_type: 3 } },
      /rope_type: expected a string, found 3/,
    ],
    [
      'types that disagree',
      { rope_scaling: { type: 'mrope', rope_type: 'default' } },
      /type: expected the value of rope_type, 'default', found "mrope"/,
    ],
    [
      'partial rotation',
      { rope_parameters: { partial_rotary_factor: 0.5 } },
      /partial_rotary_factor: expected 1 .*found 0.5/,
    ],
    [
      'a missing factor',
      { rope_scaling: { type: 'linear' } },
      /factor: expected a number above 0, found nothing/,
    ],
    [
      'a negative factor',
      { rope_scaling: { type: 'linear', factor: -2 } },
      /factor: expected a number above 0, found -2/,
    ],
    [
      'a factor that is text',
      { rope_scaling: { type: 'linear', factor: '2' } },
      /factor: expected a number above 0, found "2"/,
    ],
    [
      'bands in the wrong order',
      { rope_scaling: { type: 'llama3', factor: 8, low_freq_factor: 4, high_freq_factor: 1 } },
      /high_freq_factor: expected a number above 4, found 1/,
    ],
    [
      'an unknown key',
      { rope_scaling: { type: 'linear', factor: 2, mystery: 1 } },
      /mystery: expected only the keys of rope_type 'linear', found 1/,
    ],
    ['a theta of zero', { rope_theta: 0 }, /rope_theta: expected a number above 0, found 0/],
    [
      'two thetas',
      { rope_theta: 10_000, rope_parameters: { rope_theta: 500_000 } },
      /rope_theta: expected the value of rope_theta beside it, 10000, found 500000/,
    ],
    [
      'two spellings that disagree',
      { rope_scaling: { type: 'linear', factor: 2 }, rope_parameters: { rope_type: 'default' } },
      /disagree; remove one of them/,
    ],
    [
      'settings per layer type',
      { rope_parameters: { full_attention: { rope_type: 'default' } } },
      /full_attention: expected only the keys/,
    ],
    [
      'a base of 1, where yarn divides by log(1)',
      { rope_theta: 1, rope_scaling: { type: 'yarn', factor: 2 } },
      /give frequencies that are not finite/,
    ],
    [
      'a factor that is zero in single precision',
      { rope_scaling: { type: 'linear', factor: 1e-60 } },
      /give frequencies that are not finite/,
    ],
    ['a list', { rope_scaling: [] }, /rope_scaling: expected an object, found \[\]/],
  ])('refuses %s', (_, json, message) => {
    expect(() => parse(json)).toThrow(message);
  });
});
