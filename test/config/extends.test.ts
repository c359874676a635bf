// `extends: base.yaml` in recipes.
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { formatRunConfig, loadRunConfig, parseRunConfig, recipeSchema } from '../../src/methods/config.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

let folder: string;
beforeEach(() => {
  folder = temporaryDirectory();
});

function write(name: string, content: string): string {
  const path = join(folder, name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, content);
  return path;
}

const load = async (file: string, ...settings: string[]) => (await loadRunConfig(file, settings)).config;

const BASE = `method: sft
lora: {r: 4, target_modules: [q_proj]}
data: {source: arithmetic, arithmetic: {samples: 50, steps: 3}, split: [6, 2, 2]}
sft: {learning_rate: 2e-3, max_steps: 5}
`;

describe('a recipe that extends another', () => {
  it('has its values key by key, and its own in their place; lists are replaced', async () => {
    write('base.yaml', BASE);
    const upper = write(
      'my.yaml',
      'extends: base.yaml\nlora: {r: 8, target_modules: [v_proj]}\ndata: {arithmetic: {steps: 2}}\nsft:\n',
    );
    const whole = BASE.replace('r: 4', 'r: 8').replace('q_proj', 'v_proj').replace('steps: 3', 'steps: 2');
    const { config } = parseRunConfig(whole, { name: 'whole.yaml' });
    expect(await load(upper)).toEqual(config);
    // --set stands above both.
    expect(await load(upper, 'lora.r=16')).toMatchObject({ lora: { r: 16, target_modules: ['v_proj'] } });
  });

  it('is saved whole: what a run keeps extends nothing', async () => {
    write('base.yaml', BASE);
    const config = await load(write('my.yaml', 'extends: base.yaml\nsft: {max_steps: 7}\n'));
    const saved = formatRunConfig(config);
    expect(saved).not.toContain('extends');
    expect(parseRunConfig(saved, { name: 'config.yaml' }).config).toEqual(config);
  });

  it('may extend one that extends, from other folders, and one of the package by name', async () => {
    write('a/base.yaml', BASE);
    write('b/middle.yaml', 'extends: ../a/base.yaml\nsft: {max_steps: 6}\n');
    const upper = write('c/my.yaml', 'extends: ../b/middle.yaml\nrun: {seed: 3}\n');
    expect(await load(upper)).toMatchObject({ lora: { r: 4 }, sft: { max_steps: 6 }, run: { seed: 3 } });

    const shipped = await load('recipes/quickstart_sft.yaml');
    for (const name of ['quickstart_sft', 'quickstart_sft.yaml'])
      expect(await load(write('mine.yaml', `extends: ${name}\nrun: {seed: 7}\n`))).toEqual({
        ...shipped,
        run: { ...shipped.run, seed: 7 },
      });
  });

  it('prefers a file beside it to a recipe of the package', async () => {
    write('quickstart.yaml', BASE);
    expect(await load(write('my.yaml', 'extends: quickstart.yaml\n'))).toMatchObject({ method: 'sft' });
    expect(await load(write('my.yaml', 'extends: quickstart\n'))).toMatchObject({ method: 'stepamc' });
  });

  it('of another method leaves out the sections of the method below, but not its own by mistake', async () => {
    write('base.yaml', BASE);
    const upper = write('my.yaml', 'extends: base.yaml\nmethod: kto\nkto: {beta: 0.3}\n');
    const config = await load(upper);
    expect(config).toMatchObject({ method: 'kto', lora: { r: 4 }, kto: { beta: 0.3 } });
    expect(config).not.toHaveProperty('sft');
    write('my.yaml', 'extends: base.yaml\nmethod: kto\nsft: {max_steps: 2}\n');
    await expect(load(upper)).rejects.toThrow('my.yaml:3:1: section "sft" belongs to method sft');
  });

  it('may name the algorithm that the one below has otherwise', async () => {
    const upper = write('my.yaml', 'extends: quickstart_reinforce\nmethod: rloo\n');
    expect(await load(upper)).toMatchObject({ method: 'ppo', ppo: { algorithm: 'rloo' } });

    write('grpo.yaml', 'extends: quickstart_reinforce\nmethod: grpo\n');
    const algorithm = async (content: string, ...settings: string[]) => {
      const config = await load(write('my.yaml', `extends: grpo.yaml\n${content}`), ...settings);
      return config.method === 'ppo' && config.ppo.algorithm;
    };
    expect(await algorithm('run: {seed: 1}\n')).toBe('grpo');
    // A name that implies no algorithm takes back what the name below implied.
    expect(await algorithm('method: ppo\n')).toBe('ppo');
    expect(await algorithm('', 'method=ppo')).toBe('ppo');
    expect(await algorithm('ppo: {algorithm: rloo}\n')).toBe('rloo');
  });

  it('has each mistake where it stands', async () => {
    const base = write('base.yaml', `${BASE}run: {sed: 3}\n`);
    const upper = write('my.yaml', 'extends: base.yaml\nsft: {learning_rte: 1}\n');
    const message = await load(upper).catch((error: Error) => error.message);
    expect(message).toContain(
      `${upper}:2:7: unknown key "learning_rte" in sft; did you mean "learning_rate"?`,
    );
    expect(message).toContain(`${base}:5:7: unknown key "sed" in run; did you mean "seed"?`);
  });
});

describe('extends is refused', () => {
  const refused = async (content: string, sentence: string | RegExp) => {
    const file = write('my.yaml', content);
    const error = await load(file).catch((error: unknown) => error as Error);
    const message = (error as Error).message.replaceAll(`${folder}/`, '');
    if (typeof sentence === 'string') expect(message).toBe(sentence);
    else expect(message).toMatch(sentence);
    expect((error as Error).name).toBe('ConfigError');
  };

  it('where there is no such recipe', async () => {
    await refused(
      'extends: gone.yaml\n',
      'my.yaml:1:10: extends names gone.yaml, but there is no such file beside my.yaml and no recipe of that name in the package; ' +
        'npx steptrain recipes ls lists them',
    );
    await refused('extends: quikstart\n', /in the package; did you mean quickstart\?$/);
    write('base.yaml', BASE);
    await refused('extends: base\n', /in the package; did you mean base\.yaml\?$/);
    await refused(
      'extends: .\n',
      /^my\.yaml:1:10: extends names \., but there is no such file beside my\.yaml/,
    );
  });

  it.each([
    ['', 'nothing'],
    ['[a.yaml, b.yaml]', 'the list ["a.yaml","b.yaml"]'],
    ['{a: b}', 'a section'],
    ["' '", 'the text " "'],
  ])('for %j', async (value, found) => {
    await refused(
      `method: sft\nextends: ${value}\n`,
      new RegExp(
        `^my\\.yaml:2:\\d+: extends expects the file of a recipe, or the name of one of the package, found ${found.replaceAll(/[[\]]/g, '\\$&')}$`,
      ),
    );
  });

  it('in a circle, however the files are named', async () => {
    await refused('extends: my.yaml\n', 'my.yaml:1:10: extends goes round in a circle: my.yaml → my.yaml');
    write('sub/other.yaml', 'extends: ../my.yaml\n');
    await refused(
      'extends: ./sub/../sub/other.yaml\n',
      'sub/other.yaml:1:10: extends goes round in a circle: my.yaml → sub/other.yaml → my.yaml',
    );
  });

  it('in too many storeys', async () => {
    write('0.yaml', BASE);
    for (let i = 1; i <= 20; i++) write(`${i}.yaml`, `extends: ${i - 1}.yaml\n`);
    expect(await load(join(folder, '8.yaml'))).toMatchObject({ method: 'sft' });
    await refused('extends: 19.yaml\n', '12.yaml:1:10: more than 8 recipes extend one another');
  });

  it('where the one below is no recipe', async () => {
    write('list.yaml', '[1, 2]');
    await refused('extends: list.yaml\n', /^list\.yaml:1:1: a recipe is a mapping of sections/);
    writeFileSync(join(folder, 'bytes.yaml'), Buffer.from([0xff, 0xfe, 0x00]));
    await refused('extends: bytes.yaml\n', /^bytes\.yaml: a recipe is YAML in UTF-8/);
    writeFileSync(join(folder, 'large.yaml'), Buffer.alloc(2 << 20, 0x20));
    await refused('extends: large.yaml\n', /^large\.yaml: a recipe is a short YAML file/);
  });
});

it('a key of the prototype in either recipe is an unknown key', async () => {
  write('base.yaml', BASE);
  const upper = write('my.yaml', 'extends: base.yaml\n__proto__: {seed: 1}\n');
  await expect(load(upper)).rejects.toThrow('unknown key "__proto__"');
});

it('is known to editors, which then ask for no method', () => {
  const schema = recipeSchema() as { anyOf: object[]; properties: { extends: { type: string } } };
  expect(schema.properties.extends.type).toBe('string');
  expect(schema.anyOf).toContainEqual({ required: ['extends'] });
});
