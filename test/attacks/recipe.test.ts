/** Hostile recipes and settings: each gives one short sentence with its place, soon. */
import { execFileSync } from 'node:child_process';
import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ConfigError } from '../../src/config/error.js';
import { parseRecipe } from '../../src/config/source.js';
import { completeRunConfig, loadRunConfig, parseRunConfig } from '../../src/methods/config.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const BASE = 'method: sft\ndata: {source: arithmetic}\n';

/** The sentence that a recipe is refused with. */
function refusal(content: string, ...settings: readonly string[]): string {
  try {
    parseRunConfig(content, { name: 'r.yaml', settings });
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.message;
  }
  throw new Error('it was accepted');
}

const bomb = (levels: number, width: number) =>
  Array.from({ length: levels }, (_, i) => {
    const entry = i === 0 ? 'x' : `*a${i - 1}`;
    return `a${i}: &a${i} [${Array(width).fill(entry).join(',')}]`;
  }).join('\n');

describe('a hostile recipe', () => {
  it.each<[string, string, RegExp]>([
    ['aliases that multiply', bomb(9, 9), /^r\.yaml: this is not usable YAML: Excessive alias count/],
    ['a hundred thousand aliases', `a: &a 1\nb: [${'*a,'.repeat(1e5)}]`, /Excessive alias count/],
    [
      'an alias of itself',
      'method: sft\ndata: &a {source: *a}',
      /^r\.yaml:2:19: data\.source expects one of/,
    ],
    ['an alias of nothing', 'method: *a', /^r\.yaml: this is not usable YAML: Unresolved alias/],
    ['lists without end', `method: ${'['.repeat(1e5)}`, /not valid YAML: it is nested too deeply$/],
    ['sections without end', `method: ${'{a: '.repeat(5e4)}`, /not valid YAML: it is nested too deeply$/],
    ['dashes without end', '- '.repeat(3e4), /not valid YAML: it is nested too deeply$/],
    ['questions without end', '? '.repeat(3e4), /not valid YAML: it is nested too deeply$/],
    [
      'a hundred thousand keys',
      `method: sft\n${keys(1e5)}`,
      /^r\.yaml:1:1: a section has at most 1000 keys, this one has 100001$/,
    ],
    [
      'as many in a section',
      `method: sft\nsft:\n${keys(1e5, '  ')}`,
      /^r\.yaml:3:3: a section has at most 1000 keys/,
    ],
    ['a key of ten million letters', `method: sft\n${'k'.repeat(1e7)}: 1`, /at most 1024 chars/],
    [
      'a tag of forty thousand letters',
      `method: ${'!x'.repeat(2e4)} 1`,
      /Could not resolve tag: .{100,200}…$/,
    ],
    ['a text without an end', `method: "${'\\x41'.repeat(2e5)}`, /Missing closing "quote/],
    [
      'a key twice',
      `${BASE}sft: {max_steps: 1}\nsft: {max_steps: 2}`,
      /^r\.yaml:4:1: the key "sft" stands here a second time$/,
    ],
    [
      'a key twice in a section',
      `${BASE}sft: {max_steps: 1, max_steps: 2}`,
      /^r\.yaml:3:21: the key "max_steps" stands/,
    ],
    ['two documents', `${BASE}---\nmethod: ppo`, /expected one document, found a second one after ---$/],
    ['a merge key', `${BASE}<<: {sft: {max_steps: 3}}`, /^r\.yaml:3:1: unknown key "<<"/],
    ['a prototype', `${BASE}__proto__: {method: ppo}`, /^r\.yaml:3:1: unknown key "__proto__"/],
    ['a prototype in a section', `${BASE}sft: {__proto__: {max_steps: 1}}`, /unknown key "__proto__" in sft/],
    ['a constructor', `${BASE}constructor: 1`, /unknown key "constructor"/],
    ['a method of the prototype', 'method: toString', /as method, found the text "toString"/],
    ['bytes as a method', 'method: !!binary aGVsbG8=', /as method, found/],
    [
      'NaN',
      `${BASE}sft: {learning_rate: .nan}`,
      /learning_rate expects a number above 0, found the number NaN$/,
    ],
    ['infinity', `${BASE}sft: {learning_rate: .inf}`, /expects a number above 0, found the number Infinity$/],
    [
      'a negative rate',
      `${BASE}sft: {learning_rate: -1e-3}`,
      /expects a number above 0, found the number -0\.001$/,
    ],
    [
      'a seed beyond whole numbers',
      `${BASE}run: {seed: 99999999999999999999}`,
      /^r\.yaml:3:13: run\.seed expects a whole number from 0 to 4294967295, found the number 1\d+$/,
    ],
    [
      'a date as a seed',
      `${BASE}run: {seed: 2020-01-01}`,
      /run\.seed expects a whole number .*, found the text "2020-01-01"$/,
    ],
    ['half a step', `${BASE}sft: {max_steps: 0.5}`, /max_steps expects/],
    ['a list as a section', `${BASE}sft: [1, 2]`, /^r\.yaml:3:6: sft expects a section/],
  ])('with %s', (_, content, message) => {
    const said = refusal(content);
    expect(said).toMatch(message);
    expect(said.length).toBeLessThan(2000);
  });

  it.each<[string, string, RegExp]>([
    ['an alias', 'run.seed=*a', /^--set run\.seed=\*a: the value is not valid YAML: Unresolved alias/],
    [
      'brackets without end',
      `sft.max_steps=${'['.repeat(1e5)}`,
      /^--set sft\.max_steps=\[+…: the value is not valid YAML: it is nested/,
    ],
    ['a prototype', '__proto__.x=1', /^--set __proto__\.x=1: unknown key "__proto__"/],
    ['a prototype below a section', 'sft.__proto__.max_steps=1', /unknown key/],
    ['a constructor', 'sft.constructor=1', /unknown key "constructor" in sft/],
    ['a key of a million letters', `${'k'.repeat(1e6)}=1`, /unknown key/],
    ['keys without end', `${'sft.'.repeat(1e5)}x=1`, /unknown key/],
    [
      'aliases that multiply',
      `data=${'{a: &a [x,x,x,x,x,x,x,x,x,x], b: &b ['}${'*a,'.repeat(200)}], c: [${'*b,'.repeat(200)}]}`,
      /not valid YAML: Excessive alias/,
    ],
  ])('with --set of %s', (_, setting, message) => {
    const said = refusal(BASE, setting);
    expect(said).toMatch(message);
    expect(said.length).toBeLessThan(2000);
    expect(({} as Record<string, unknown>).x).toBeUndefined();
  });

  it.each<[string, (path: string) => void, RegExp]>([
    ['an endless device', (path) => symlinkSync('/dev/zero', path), /larger than 1 MiB$/],
    [
      'a link to itself',
      (path) => symlinkSync(path, path),
      /cannot be read: too many|cannot be read: .*ELOOP/,
    ],
    ['a link to nothing', (path) => symlinkSync('/nowhere/r.yaml', path), /cannot be read: no such file/],
    ['zeros', (path) => writeFileSync(path, Buffer.alloc(1000)), /r\.yaml/],
    ['UTF-16', (path) => writeFileSync(path, Buffer.from(`\ufeff${BASE}`, 'utf16le')), /is not UTF-8 text$/],
    [
      'a program',
      (path) => writeFileSync(path, execFileSync('head', ['-c', '9000', process.execPath])),
      /UTF-8/,
    ],
  ])('that is %s as a file', async (_, make, message) => {
    const path = join(temporaryDirectory(), 'r.yaml');
    make(path);
    const error = await loadRunConfig(path).then(
      () => new Error('it was accepted'),
      (reason: Error) => reason,
    );
    expect(error).toBeInstanceOf(ConfigError);
    expect(error.message).toMatch(message);
    expect(error.message.length).toBeLessThan(2000);
  });

  it.each<[string, () => unknown, RegExp]>([
    [
      'a function',
      () => ({ method: 'sft', data: { source: () => 1 } }),
      /holds texts, numbers, lists and sections alone/,
    ],
    ['a symbol', () => ({ method: Symbol('sft') }), /holds texts, numbers, lists and sections alone/],
    [
      'itself',
      () => {
        const config: Record<string, unknown> = { method: 'sft' };
        config.data = config;
        return config;
      },
      /unknown key "method" in data/,
    ],
    ['nothing', () => undefined, /an object with sections, found nothing/],
    ['a list', () => [], /an object with sections, found/],
    ['a promise', () => Promise.resolve({}), /holds texts, numbers|method is missing/],
  ])('from a program with %s', (_, config, message) => {
    expect(() => completeRunConfig(config() as never)).toThrow(ConfigError);
    expect(() => completeRunConfig(config() as never)).toThrow(message);
  });

  it('of any text is a mapping or a sentence, and every place in it is found', () => {
    const pieces = fc.constantFrom(
      ...'a: - [ ] { } , & * ! | > \' " # % @ ` ? : \n'.split(' '),
      ' ',
      '\n  ',
      '&a',
      '*a',
      '<<',
      '1e999',
      '---',
    );
    fc.assert(
      fc.property(fc.array(pieces, { maxLength: 30 }), (parts) => {
        try {
          const { value, locate } = parseRecipe(parts.join(''), 'r.yaml');
          expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
          for (const key of Object.keys(value)) expect(locate([key])).toMatch(/^r\.yaml(:\d+:\d+)?$/);
        } catch (error) {
          expect(error).toBeInstanceOf(ConfigError);
          expect((error as Error).message).toMatch(/^r\.yaml/);
        }
      }),
      { numRuns: 2000 },
    );
  });
});

function keys(count: number, indent = ''): string {
  return Array.from({ length: count }, (_, i) => `${indent}k${i}: 1`).join('\n');
}
