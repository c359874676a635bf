// `pretrained:` of a recipe for a small base: its values where model.base is none of the package's models.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { formatRunConfig, loadRunConfig, parseRunConfig } from '../../src/methods/config.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const RECIPE = `method: sft
model: {base: word-problems}
data: {train: rows.jsonl, max_length: 512}
sft: {learning_rate: 1e-3, tokens_per_step: 2048}
pretrained:
  data: {max_length: 1024}
  sft: {learning_rate: 2e-4}
`;

let folder: string;
beforeEach(() => {
  folder = temporaryDirectory();
});

function write(name: string, content: string): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

const load = async (file: string, ...settings: string[]) => (await loadRunConfig(file, settings)).config;

describe('a recipe with values for a pretrained base', () => {
  it('has them where another base is named, and says so; no run keeps the section', async () => {
    const said = vi.spyOn(console, 'error').mockImplementation(() => {});
    const recipe = write('small.yaml', RECIPE);
    const own = { data: { max_length: 512 }, sft: { learning_rate: 1e-3, tokens_per_step: 2048 } };
    expect(await load(recipe)).toMatchObject(own);
    expect(await load(recipe, 'model.base=embedded')).toMatchObject(own);
    expect(said.mock.calls).toEqual([]);
    const config = await load(recipe, 'model.base=org/model');
    expect(config).toMatchObject({
      data: { max_length: 1024 },
      sft: { learning_rate: 2e-4, tokens_per_step: 2048 },
    });
    expect(said.mock.calls).toEqual([
      [
        'for the base org/model small.yaml has data.max_length 1024, sft.learning_rate 0.0002; --set changes them',
      ],
    ]);
    // What --set changes is said as it is, and nothing before a mistake.
    await load(recipe, 'model.base=org/other', 'sft.learning_rate=1e-5');
    await load(recipe, 'model.base=org/third', 'sft.learning_rat=1').catch(() => {});
    expect(said.mock.calls.slice(1)).toEqual([
      [
        expect.stringContaining(
          'for the base org/other small.yaml has data.max_length 1024, sft.learning_rate 0.00001;',
        ),
      ],
    ]);
    const saved = formatRunConfig(config);
    expect(saved).not.toContain('pretrained:');
    expect(parseRunConfig(saved, { name: 'config.yaml' }).config).toEqual(config);
    said.mockRestore();
  });

  it('stands below --set and below a recipe that extends it, whichever names the base', async () => {
    write('small.yaml', RECIPE);
    const upper = write(
      'mine.yaml',
      'extends: small.yaml\nmodel: {base: ./model}\nsft: {learning_rate: 5e-5}\n',
    );
    expect(await load(upper, 'data.max_length=700')).toMatchObject({
      data: { max_length: 700 },
      sft: { learning_rate: 5e-5, tokens_per_step: 2048 },
    });
    expect(await load(upper, 'model.base=word-problems')).toMatchObject({ data: { max_length: 512 } });
  });

  it('is refused at its own place', async () => {
    const refused = (section: string) =>
      load(write('bad.yaml', `method: sft\ndata: {train: a}\n${section}`), 'model.base=x/y');
    await expect(refused('pretrained: 3\n')).rejects.toThrow(
      /bad\.yaml:3:13: pretrained expects sections as a recipe has them, found the number 3/,
    );
    await expect(refused('pretrained: {sft: {learning_rat: 1}}\n')).rejects.toThrow(
      /bad\.yaml:3:20: unknown key "learning_rat" in sft; did you mean "learning_rate"/,
    );
    await expect(refused('pretrained: {method: ppo}\n')).rejects.toThrow(
      /bad\.yaml:3:14: pretrained has no method; it holds values of sections alone/,
    );
  });
});
