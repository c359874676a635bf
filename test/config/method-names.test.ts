// The names under which people know the algorithms of method ppo.
import { describe, expect, it } from 'vitest';
import { completeRunConfig, parseRunConfig, recipeSchema } from '../../src/methods/config.js';
import { ALGORITHMS } from '../../src/methods/ppo/algorithms.js';

const RECIPE = 'data: {source: word_problems}\nmodel: {base: word-problems}\nreward: {rule: {weight: 1}}\n';

const parse = (content: string, ...settings: string[]) =>
  parseRunConfig(content, { name: 'r.yaml', settings }).config;

describe.each(ALGORITHMS)('method: %s', (name) => {
  const more = name === 'prime' ? ['reward.implicit.weight=1', 'lora={}'] : [];
  const spelledOut = parse(`method: ppo\nppo: {algorithm: ${name}}\n${RECIPE}`, ...more);

  it('is method ppo with that algorithm, whoever says it', () => {
    expect(spelledOut).toMatchObject({ method: 'ppo', ppo: { algorithm: name } });
    expect(parse(`method: ${name}\n${RECIPE}`, ...more)).toEqual(spelledOut);
    expect(parse(`method: ${name}\nppo: {algorithm: ${name}}\n${RECIPE}`, ...more)).toEqual(spelledOut);
    const input = {
      method: name,
      model: { base: 'word-problems' },
      data: { source: 'word_problems' },
      reward: { rule: { weight: 1 }, ...(name === 'prime' ? { implicit: { weight: 1 } } : {}) },
      ...(name === 'prime' ? { lora: {} } : {}),
    } as const;
    expect(completeRunConfig(input)).toEqual(spelledOut);
    expect(input.method).toBe(name);
  });

  it('takes the place of the algorithm of the recipe after --set', () => {
    const other = `method: ${name === 'rloo' ? 'gspo' : 'rloo'}\n${RECIPE}`;
    for (const setting of [`method=${name}`, `method="${name}"`])
      expect(parse(other, ...more, setting)).toEqual(spelledOut);
    expect(parse(other, ...more, `ppo.algorithm=${name}`)).toEqual(spelledOut);
  });
});

it('is refused beside another algorithm in the same place', () => {
  expect(() => parse(`method: grpo\nppo: {algorithm: gspo}\n${RECIPE}`)).toThrow(
    'r.yaml:1:9: method grpo is method ppo with ppo.algorithm grpo, and ppo.algorithm is gspo; leave out one of the two',
  );
  expect(() => parse(`method: ppo\n${RECIPE}`, 'ppo.algorithm=gspo', 'method=grpo')).toThrow(
    '--set method=grpo: method grpo is method ppo with ppo.algorithm grpo, and ppo.algorithm is gspo',
  );
  expect(() => parse(`method: grpo\nppo: 7\n${RECIPE}`)).toThrow('ppo expects a section, found the number 7');
});

it.each([
  ['grpoo', 'grpo'],
  ['GRPO', 'grpo'],
  ['reinforce++', 'reinforce_pp'],
  ['reinforce', 'reinforce_pp'],
  ['PRM', 'reward'],
  ['stf', 'sft'],
])('method: %s proposes %s', (typed, meant) => {
  expect(() => parse(`method: ${typed}\n${RECIPE}`)).toThrow(
    `as method, found the text "${typed}"; did you mean "${meant}"?`,
  );
});

it('is known to editors, with the sections of method ppo', () => {
  const schema = recipeSchema() as {
    properties: { method: { enum: string[] } };
    allOf: { if: { properties: { method: { enum: string[] } } }; then: { properties: object } }[];
  };
  for (const name of ALGORITHMS) {
    expect(schema.properties.method.enum.filter((known) => known === name)).toHaveLength(1);
    const rows = schema.allOf.filter((row) => row.if.properties.method.enum.includes(name));
    expect(rows.map(({ then }) => Object.keys(then.properties))).toEqual([
      expect.arrayContaining(['rollout']),
    ]);
  }
});
