// Sections and keys under the names that they had in an earlier version.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, it, onTestFinished, vi } from 'vitest';
import { completeRunConfig, loadRunConfig, parseRunConfig } from '../../src/methods/config.js';
import { methods } from '../../src/methods/table.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

let said: string[];
let name: string;
beforeEach(() => {
  said = [];
  // A line is said once in a process.
  name = join(temporaryDirectory(), 'r.yaml');
  const spy = vi.spyOn(console, 'error').mockImplementation((line: string) => {
    said.push(line);
  });
  onTestFinished(() => spy.mockRestore());
});

const parse = (content: string, ...settings: string[]) => parseRunConfig(content, { name, settings }).config;
const STEPAMC = 'method: stepamc\nmodel: {base: word-problems}\ndata: {source: arithmetic}\n';

it('reads them as those of today, with one line', () => {
  const today = 'verdict_ppo: {lam: 0.5}\nverdict_dpo: {beta: 0.2}\neval_verdicts: {threshold: 0.3}\n';
  const former = 'ppo: {lam: 0.5}\ndpo: {beta: 0.2}\neval: {threshold: 0.3}\n';
  expect(parse(STEPAMC + former)).toEqual(parse(STEPAMC + today));
  expect(said).toEqual([
    `${name}: ppo is verdict_ppo now, dpo is verdict_dpo now, eval.threshold is eval_verdicts.threshold now`,
  ]);
});

it('reads them after --set and in objects of programs', () => {
  const today = parse(STEPAMC, 'verdict_ppo.lam=0.5', 'eval_verdicts.threshold=0.3');
  expect(parse(STEPAMC, 'ppo.lam=0.5', 'eval.threshold=0.3')).toEqual(today);
  expect(said).toEqual([
    '--set ppo.lam=0.5: ppo.lam is verdict_ppo.lam now',
    '--set eval.threshold=0.3: eval.threshold is eval_verdicts.threshold now',
  ]);
  const written = { method: 'stepamc', model: { base: 'word-problems' }, data: { source: 'arithmetic' } };
  expect(completeRunConfig({ ...written, ppo: { lam: 0.5 }, eval: { threshold: 0.3 } })).toEqual(today);
});

it('reads them in a section that is given whole after --set', () => {
  const today = parse(STEPAMC, 'eval_verdicts.threshold=0.3', 'eval_verdicts.neutral=negative');
  expect(parse(STEPAMC, 'eval={threshold: 0.3, neutral: negative}')).toEqual(today);
  expect(said).toEqual([
    '--set eval={threshold: 0.3, neutral: negative}: eval.neutral is eval_verdicts.neutral now',
    '--set eval={threshold: 0.3, neutral: negative}: eval.threshold is eval_verdicts.threshold now',
  ]);
  // What has no other name stays where it was.
  const GRPO = 'method: grpo\nmodel: {base: word-problems}\ndata: {source: word_problems}\n';
  expect(parse(GRPO, 'eval={n: 3, max_samples: 77}')).toEqual(
    parse(GRPO, 'eval.max_samples=77', 'rollout.num_generations_eval=3'),
  );
  expect(() => parse(STEPAMC, 'eval={treshold: 0.3}')).toThrow('unknown key "treshold"');
});

it('reads keys of every method that had other names, and refuses removed ones, after --set too', () => {
  const GRPO =
    'method: grpo\nmodel: {base: word-problems}\ndata: {source: word_problems}\nreward: {steps: {}}\n';
  expect(parse(GRPO, 'reward.steps.run=runs/prm')).toEqual(parse(GRPO, 'reward.steps.model=runs/prm'));
  expect(said).toEqual(['--set reward.steps.run=runs/prm: reward.steps.run is reward.steps.model now']);
  said = [];
  const rate = 'data.word_problems.correction_rate';
  expect(parse(GRPO, `${rate}=0`)).toEqual(parse(GRPO));
  expect(said).toEqual([`--set ${rate}=0: ${rate} is no longer a key, and 0 asked for nothing`]);
  expect(() => parse(GRPO, `${rate}=0.2`)).toThrow(
    `--set ${rate}=0.2: ${rate} is no longer a key, found the number 0.2; solutions with`,
  );
  expect(() => parse(GRPO.replace('steps: {}', 'steps: {run: a, model: b}'))).toThrow(
    'reward.steps.run is reward.steps.model now, and both are given; remove reward.steps.run',
  );
});

it('names the place where the value stands', () => {
  expect(() => parse(`${STEPAMC}ppo:\n  lam: 5\n`)).toThrow(`${name}:5:8: verdict_ppo.lam expects`);
  expect(() => parse(`${STEPAMC}ppo:\n  lamb: 1\n`)).toThrow(
    `${name}:5:3: unknown key "lamb" in verdict_ppo`,
  );
  expect(() => parse(STEPAMC, 'ppo.lam=5')).toThrow('--set ppo.lam=5: verdict_ppo.lam expects');
});

it('refuses both names in one recipe', () => {
  const both = 'eval: {threshold: 0.3}\neval_verdicts: {threshold: 0.6}\n';
  expect(() => parse(STEPAMC + both)).toThrow(
    `${name}:4:8: eval.threshold is eval_verdicts.threshold now, and both are given; remove eval.threshold`,
  );
  expect(() => parse(`${STEPAMC}ppo: {lam: 0.5}\nverdict_ppo: 5\n`)).toThrow('both are given; remove ppo');
});

it('lets a recipe that has them stand above one that has those of today', async () => {
  const folder = temporaryDirectory();
  mkdirSync(folder, { recursive: true });
  const write = (file: string, content: string) => {
    writeFileSync(join(folder, file), content);
    return join(folder, file);
  };
  write('base.yaml', `${STEPAMC}verdict_ppo: {lam: 0.5, gamma: 0.9}\n`);
  const { config } = await loadRunConfig(write('my.yaml', 'extends: base.yaml\nppo: {lam: 0.6}\n'));
  expect(config).toMatchObject({ verdict_ppo: { lam: 0.6, gamma: 0.9 } });
  // The section of another method is what it says, and left out.
  write('policy.yaml', 'method: grpo\nmodel: {base: word-problems}\nppo: {lam: 0.7}\n');
  const other = await loadRunConfig(
    write('other.yaml', 'extends: policy.yaml\nmethod: stepamc\ndata: {source: arithmetic}\n'),
  );
  expect(other.config).toMatchObject({ verdict_ppo: { lam: 0.95 } });
});

it('has no former name that is one of today, and only names of today in its place', () => {
  const wrong = Object.entries(methods).flatMap(([method, row]) => {
    const { properties = {} } = row.schema.toJSONSchema({ io: 'input' });
    type Node = { readonly properties?: Readonly<Record<string, Node>> };
    const has = (key: string) => {
      let node: Node | undefined = { properties: properties as Readonly<Record<string, Node>> };
      for (const part of key.split('.')) node = node?.properties?.[part];
      return node !== undefined;
    };
    return Object.entries(('formerly' in row && row.formerly) || {}).flatMap(([former, now]) =>
      has(former) || !has(now) ? [`${method}: ${former} → ${now}`] : [],
    );
  });
  expect(wrong).toEqual([]);
});
