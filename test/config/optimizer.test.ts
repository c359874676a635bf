// The section `optimizer`: what stages take from it, and what stands above it.
import { readFileSync } from 'node:fs';
import { expect, it, onTestFinished, vi } from 'vitest';
import { formatRunConfig, parseRunConfig, recipeSchema } from '../../src/methods/config.js';
import type { StepAmcRunConfig } from '../../src/methods/stepamc/config.js';

const STEPAMC = 'method: stepamc\ndata: {source: arithmetic}\n';

function parse(content: string, ...settings: string[]) {
  const { config, locate } = parseRunConfig(STEPAMC + content, { name: 'r.yaml', settings });
  const { sft, reward_network, verdict_ppo } = config as StepAmcRunConfig;
  return {
    config,
    locate,
    rates: [sft, reward_network, verdict_ppo].map(({ learning_rate }) => learning_rate),
  };
}

it('stands above the defaults of stages and below their own keys', () => {
  expect(parse('').rates).toEqual([1e-4, 1e-4, 5e-6]);
  expect(parse('optimizer:\n').rates).toEqual([1e-4, 1e-4, 5e-6]);
  expect(parse('optimizer: {learning_rate: 0.5}\n').rates).toEqual([0.5, 0.5, 0.5]);
  const { rates, locate } = parse('optimizer: {learning_rate: 0.5}\nsft: {learning_rate: 0.25}\n');
  expect(rates).toEqual([0.25, 0.5, 0.5]);
  expect(locate(['reward_network', 'learning_rate'])).toBe('r.yaml:3:28');
  expect(locate(['sft', 'learning_rate'])).toBe('r.yaml:4:22');
});

it('reaches the keys of which a stage has a type of its own', () => {
  const { config } = parse('optimizer: {num_train_epochs: 2.5, max_steps: 7}\n');
  expect(config).toMatchObject({
    sft: { num_train_epochs: 2.5, max_steps: 7 },
    reward_network: { num_train_epochs: 2.5 },
    verdict_ppo: { num_train_epochs: 2.5 },
  });
  expect((config as unknown as StepAmcRunConfig).verdict_ppo).not.toHaveProperty('max_steps');
});

it('stands above the recipe where it is set from the command line, and below what is set of a stage', () => {
  const settings = ['reward_network.learning_rate=0.1', 'optimizer.learning_rate=0.125'];
  const { rates, locate } = parse('sft: {learning_rate: 0.25}\n', ...settings);
  expect(rates).toEqual([0.125, 0.1, 0.125]);
  expect(locate(['sft', 'learning_rate'])).toBe('--set optimizer.learning_rate=0.125');
  expect(parse('', 'optimizer={learning_rate: 0.75}').rates).toEqual([0.75, 0.75, 0.75]);
});

it('names the place of a wrong key or value', () => {
  expect(() => parse('optimizer: {learnin_rate: 1}\n')).toThrow(
    'r.yaml:3:13: unknown key "learnin_rate" in optimizer; did you mean "learning_rate"?',
  );
  expect(() => parse('optimizer: {learning_rate: -1}\n')).toThrow(
    'r.yaml:3:28: optimizer.learning_rate expects a number above 0, found the number -1',
  );
  expect(() => parse('', 'optimizer.learning_rat=1')).toThrow(
    '--set optimizer.learning_rat=1: unknown key "learning_rat" in optimizer; did you mean "learning_rate"?',
  );
  expect(() => parse('', 'optimizer.learning_rate=-1')).toThrow(
    '--set optimizer.learning_rate=-1: optimizer.learning_rate expects a number above 0',
  );
  expect(() => parse('optimizer: 5\n')).toThrow(
    'r.yaml:3:12: optimizer expects a section, found the number 5',
  );
});

it('warns of a key that no stage takes', () => {
  const said: string[] = [];
  const spy = vi.spyOn(console, 'error').mockImplementation((line: string) => {
    said.push(line);
  });
  onTestFinished(() => spy.mockRestore());
  const SFT = 'method: sft\ndata: {source: arithmetic}\nsft: {patience: 0}\noptimizer: {patience: 3}\n';
  parseRunConfig(SFT, { name: 'own.yaml' });
  parseRunConfig(
    'method: grpo\nmodel: {base: word-problems}\ndata: {source: word_problems}\noptimizer: {tokens_per_step: 3}\n',
    { name: 'none.yaml' },
  );
  expect(said.join('\n')).toMatch(
    /own\.yaml:4:13: optimizer\.patience changes nothing, since the recipe has sft\.patience/,
  );
  expect(said.join('\n')).toMatch(
    /none\.yaml:4:13: optimizer\.tokens_per_step changes nothing, since no stage has/,
  );
});

it('is merged into the stages of config.yaml, which is a recipe of the same values', () => {
  const { config } = parse('optimizer: {save_steps: 5}\nsft: {save_steps: 9}\n');
  expect(config).not.toHaveProperty('optimizer');
  const again = parseRunConfig(formatRunConfig(config), { name: 'config.yaml', settings: [] });
  expect(again.config).toEqual(config);
  // As a resume may.
  const settings = ['optimizer.save_steps=3'];
  const resumed = parseRunConfig(formatRunConfig(config), { name: 'config.yaml', settings });
  expect(resumed.config).toMatchObject({ sft: { save_steps: 3 }, reward_network: { save_steps: 3 } });
});

it('is said once in the documentation and in the schema', () => {
  const page = readFileSync(new URL('../../docs/reference/configuration.md', import.meta.url), 'utf8');
  expect(page.split('\n').filter((line) => line.startsWith('| `adam_beta2` |'))).toHaveLength(1);
  expect(page).toContain('| any key of [`optimizer`](#optimizer) |');
  expect(JSON.stringify(recipeSchema()).match(/Decay of the mean of the squared gradients/g)).toHaveLength(1);
});
