import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { describe, expect, it } from 'vitest';
import { described, GROUPS } from '../../src/cli/recipe-list.js';
import { recipeNames } from '../../src/config/shipped.js';
import { isGenerated } from '../../src/data/generated.js';
import { parseRunConfig } from '../../src/methods/config.js';
import type { RunConfig } from '../../src/methods/table.js';
import { isShipped } from '../../src/models/base.js';

const folder = new URL('../../recipes/', import.meta.url);
const recipes = recipeNames().map((name) => `${name}.yaml`);
const read = (name: string) => readFileSync(new URL(name, folder), 'utf8');

/** With rows from the user where the recipe generates none. */
function configOf(name: string): RunConfig {
  const parse = (settings: string[]) => parseRunConfig(read(name), { name, settings }).config;
  try {
    return parse([]);
  } catch {
    return parse(['data.train=file.jsonl']);
  }
}

it('the package ships recipes, including the default', () => {
  expect(recipes).toContain('quickstart.yaml');
  expect(recipes.length).toBeGreaterThanOrEqual(4);
});

describe.each(recipes)('%s', (name) => {
  it('is a valid configuration once the user has given the data', () => {
    expect(configOf(name).run.output_dir).toBe(`runs/${basename(name, '.yaml')}`);
  });

  it('starts with its purpose and the commands to run it', () => {
    const head = read(name).split('\n\n')[0]!;
    expect(head.split('\n').every((line) => line.startsWith('#'))).toBe(true);
    expect(head.match(/^# {3}.*steptrain (run|data) /gm)!.length).toBeGreaterThanOrEqual(2);
    const commands = head.match(/steptrain (?:run|data \w+) (?!--)(\S+)/g) ?? [];
    for (const command of commands) expect(recipes).toContain(`${command.split(' ').at(-1)}.yaml`);
    for (const line of read(name).split('\n')) expect(line.length).toBeLessThanOrEqual(120);
  });

  it('is in the group that it belongs to, and says whether it was ever trained', () => {
    const { says, group, neverTrained } = described(name, read(name));
    const { data, model } = configOf(name);
    expect(Object.keys(GROUPS)).toContain(group);
    expect(says.length).toBeGreaterThan(10);
    expect(group === 'try now').toBe(isGenerated(data.source));
    // Neither of the package, nor made by a recipe of it, nor the one pretrained model that was trained with it.
    const { base } = model;
    const known = typeof base !== 'string' || isShipped(base) || /^(runs|HuggingFaceTB)\//.test(base);
    expect(neverTrained).toBe(!known);
  });
});
