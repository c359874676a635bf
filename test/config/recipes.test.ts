import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parseRunConfig } from '../../src/methods/config.js';

const folder = new URL('../../recipes/', import.meta.url);
const recipes = readdirSync(folder).filter((name) => name.endsWith('.yaml'));
const read = (name: string) => readFileSync(new URL(name, folder), 'utf8');
/** What the user gives. */
const dataOf = (name: string) =>
  /^ {2}source: (arithmetic|word_problems)$/m.test(read(name)) ? [] : ['data.train=file.jsonl'];

it('the package ships recipes, including the default', () => {
  expect(recipes).toContain('quickstart.yaml');
  expect(recipes.length).toBeGreaterThanOrEqual(4);
});

describe.each(recipes)('%s', (name) => {
  it('is a valid configuration once the user has given the data', () => {
    const { config } = parseRunConfig(read(name), { name, settings: dataOf(name) });
    expect(config.run.output_dir).toBe(`runs/${name.replace('.yaml', '')}`);
  });

  it('starts with its purpose and the commands to run it', () => {
    const head = read(name).split('\n\n')[0]!;
    expect(head.split('\n').every((line) => line.startsWith('#'))).toBe(true);
    expect(head.match(/^# {3}.*steptrain (run|data) /gm)!.length).toBeGreaterThanOrEqual(2);
    const commands = head.match(/steptrain (?:run|data \w+) (?!--)(\S+)/g) ?? [];
    for (const command of commands) expect(recipes).toContain(`${command.split(' ').at(-1)}.yaml`);
  });

  it('comments every value', () => {
    const lines = read(name).split('\n');
    const values = lines.flatMap((line, i) => (/^ *[\w]+: *\S/.test(line) ? [i] : []));
    expect(values.length).toBeGreaterThan(10);
    const bare = values.filter((i) => !lines[i - 1]!.trimStart().startsWith('# '));
    expect(bare.map((i) => lines[i])).toEqual([]);
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(120);
  });
});

it.each(recipes.filter((name) => /^method: stepamc$/m.test(read(name))))(
  '%s trains DPO in the batches of continued SFT, and selects among as many evaluations',
  (name) => {
    const { config } = parseRunConfig(read(name), { name, settings: dataOf(name) });
    if (config.method !== 'stepamc') throw new Error('not StepAMC');
    const { learning_rate, tokens_per_step, micro_batch_tokens, eval_steps, patience } = config.sft_continued;
    expect(config.dpo).toMatchObject({
      learning_rate,
      tokens_per_step,
      micro_batch_tokens,
      eval_steps,
      patience,
    });
  },
);
