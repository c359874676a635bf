// The table "Beside TRL" has every default that differs from TRL's (test/golden/make_trl_defaults.py), and no other.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { completeRunConfig } from '../../src/methods/config.js';
import { settled } from '../../src/methods/ppo/settings.js';

type Values = Readonly<Record<string, unknown>>;
const golden: Readonly<Record<string, Values>> & { readonly trl: string } = JSON.parse(
  readFileSync('test/golden/trl_defaults.json', 'utf8'),
);

/** TRL's name by ours, where they differ. */
const NAMES: Readonly<Record<string, string>> = {
  max_completion_length: 'max_new_tokens',
  warmup_steps: 'warmup_ratio',
  epsilon: 'cliprange',
  num_iterations: 'num_ppo_epochs',
};
const ONLINE_NAMES: Readonly<Record<string, string>> = { beta: 'kl_coef', max_steps: 'max_iterations' };
const BATCH = ['per_device_train_batch_size', 'gradient_accumulation_steps'];

const ONLINE = ['grpo', 'rloo'];
const METHODS = Object.keys(golden).filter((name) => name !== 'trl');

/** TRL's defaults of a method under our names. */
function theirs(method: string): Values {
  const given = golden[method] as Values;
  const batch = BATCH.reduce((product, key) => product * Number(given[key]), 1);
  const renamed = Object.entries(given).flatMap(([key, value]) => {
    const own = (ONLINE.includes(method) ? ONLINE_NAMES[key] : undefined) ?? NAMES[key] ?? key;
    return BATCH.includes(key) || value === null ? [] : [[own, value]];
  });
  return {
    ...Object.fromEntries(renamed),
    [ONLINE.includes(method) ? 'rollout_batch' : 'batch_size']: batch,
  };
}

/** Ours, of all sections that the method reads. */
function ours(method: string): Values {
  const config = completeRunConfig({
    method,
    data: { source: 'word_problems' },
  } as never) as unknown as Values & {
    readonly data: Values;
  };
  if (!ONLINE.includes(method)) return { ...config.data, ...(config[method] as Values) };
  const { ppo, rollout } = config as Values as { ppo: Values; rollout: Values };
  return { ...config.data, ...rollout, ...ppo, ...(settled(config as never) as object) };
}

const cells = (line: string) =>
  line
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim());

it('the table has every default that differs, and no other', () => {
  const page = readFileSync('docs/methods/offline.md', 'utf8');
  const [, section = ''] = /^## Beside TRL\n(.*?)^## /ms.exec(page) ?? [];
  expect(section).toContain(`TRL ${golden.trl.split('.').slice(0, 2).join('.')}`);
  const rows = section.split('\n').filter((line) => line.startsWith('| `'));
  const said = rows.flatMap((line) => {
    const [key = '', methods = '', trl, here, why] = cells(line);
    expect(why).not.toBe('');
    const named = methods === 'all' ? METHODS : methods.split(', ').map((name) => name.slice(1, -1));
    return named.map((method) => `${method}.${key.slice(1, -1)} ${trl} ${here}`);
  });
  /** As the page writes it. */
  const number = (value: unknown) =>
    typeof value === 'number' && value > 0 && value < 1e-3 ? value.toExponential() : `${value}`;
  const differing = METHODS.flatMap((method) => {
    const own = ours(method);
    return Object.entries(theirs(method)).flatMap(([key, value]) => {
      expect(own, `${method} has ${key}`).toHaveProperty(key);
      return own[key] === value ? [] : [`${method}.${key} ${number(value)} ${number(own[key])}`];
    });
  });
  expect(said.toSorted()).toEqual(differing.toSorted());
});
