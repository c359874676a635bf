// `method: reward` as a user starts it: the same bits after kills, and whole on the real PRM800K with random models of the architectures
// that its recipes name.
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sharedPath } from '../shared.js';
import { compiled, metrics, steptrain, tensors } from './program.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'steptrain-reward-e2e-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const TINY = 'hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 2';
const SHAPES = {
  opt: `model_type: opt, hidden_size: 32, ffn_dim: 64, num_hidden_layers: 2, num_attention_heads: 2, max_position_embeddings: 2048`,
  'deberta-v2': `model_type: deberta-v2, ${TINY}, position_buckets: 16, max_position_embeddings: 2048`,
  qwen2: `model_type: qwen2, ${TINY}, num_key_value_heads: 2, max_position_embeddings: 2048`,
} as const;

const recipe = async (name: string, { shape, data, reward }: Record<'shape' | 'data' | 'reward', string>) => {
  const path = join(folder, `${name}.yaml`);
  await writeFile(
    path,
    `method: reward
model: {base: {init: {${shape}}}, tokenizer: bytes, dtype: f32}
lora: none
data: {${data}}
reward_model: {${reward}}
run: {device: cpu, threads: 1, logging_steps: 1}
`,
  );
  return path;
};

describe.skipIf(!compiled)('method: reward (needs dist/: npm run build)', () => {
  test('killed in training and in the evaluation, it ends with the same bits', async () => {
    const path = await recipe('kills', {
      shape: SHAPES.qwen2,
      data: 'source: word_problems, word_problems: {samples: 1000, levels: [1], error_rate: 0.3}, max_length: 300',
      reward: 'type: joint, tokens_per_step: 1024, learning_rate: 1e-3, eval_steps: 10, save_steps: 4',
    });
    const whole = join(folder, 'whole');
    const { code, err } = await steptrain(['run', path, '--output', whole]);
    expect(code, err).toBe(0);
    const broken = join(folder, 'broken');
    const kill = (when: RegExp) => (text: string) => (when.test(text) ? ('SIGKILL' as const) : undefined);
    await steptrain(['run', path, '--output', broken], kill(/reward step (?!1\/)\d+\//));
    const resumed = await steptrain(['run', '--resume', broken], kill(/kept the parameters|evaluation:/));
    expect(resumed.err).toMatch(/from the checkpoint of step \d+: reward step/);
    expect((await steptrain(['run', '--resume', broken])).code).toBe(0);
    for (const file of ['eval.json', 'verdicts.jsonl'])
      expect(await readFile(join(broken, file), 'utf8'), file).toBe(
        await readFile(join(whole, file), 'utf8'),
      );
    const weights = 'model/model.safetensors';
    expect(tensors(join(broken, weights))).toEqual(tensors(join(whole, weights)));
    expect(await metrics(broken)).toEqual(await metrics(whole));
  });

  const prm800k = sharedPath('data/prm800k/prm800k.jsonl.gz');
  test.skipIf(!prm800k).each([
    ['opt', 'whole', 'prm'],
    ['deberta-v2', 'prefixes', 'prm'],
    ['opt', 'whole', 'orm'],
  ] as const)(
    `a random %s (input %s) becomes a model of type %s on the real PRM800K${prm800k ? '' : ' (skipped: ../shared/data/prm800k is absent)'}`,
    async (architecture, input, type) => {
      const path = await recipe(`prm800k-${architecture}-${type}`, {
        shape: SHAPES[architecture],
        data: `source: prm800k, train: ${prm800k}, max_length: ${type === 'orm' ? 2000 : 512}, max_samples: 40`,
        reward: `type: ${type}, input: ${input}, tokens_per_step: 4096, num_train_epochs: 1`,
      });
      const run = join(folder, `prm800k-${architecture}-${type}`);
      const { code, err } = await steptrain(['run', path, '--output', run, '--set', 'eval.max_samples=20']);
      expect(code, err).toBe(0);
      const report = JSON.parse(await readFile(join(run, 'eval.json'), 'utf8'));
      expect(report.metrics.n).toBeGreaterThan(0);
      if (type !== 'orm') return;
      // Most wrong solutions of PRM800K end at their error: they have no outcome, and none is made up.
      expect(report.data.left_out.unfinished).toBeGreaterThan(100);
      expect(report.baselines.length.n).toBe(report.metrics.n);
    },
  );

  const [gsm8k, math] = [sharedPath('data/gsm8k/train.jsonl.gz'), sharedPath('data/math/train.jsonl.gz')];
  const files = prm800k && gsm8k && math ? { prm800k, gsm8k, math } : undefined;
  test.skipIf(!files)(
    `opt-1.3b_reinforce_prm800k runs whole on GSM8K and MATH, with random models of its architectures${files ? '' : ' (skipped: ../shared/data is absent)'}`,
    async () => {
      const { prm800k, gsm8k, math } = files as NonNullable<typeof files>;
      const set = (keys: Readonly<Record<string, unknown>>) =>
        Object.entries(keys).flatMap(([key, value]) => ['--set', `${key}=${value}`]);
      const random = (shape: string) => `{base: {init: {${shape}}}, tokenizer: bytes, dtype: f32}`;
      const run = async (name: string, recipe: string, keys: Readonly<Record<string, unknown>>) => {
        const path = join(folder, name);
        const common = { 'run.device': 'cpu', 'run.threads': 1 };
        const ended = await steptrain(['run', recipe, '--output', path, ...set({ ...common, ...keys })]);
        expect(ended.code, ended.err).toBe(0);
        return path;
      };
      const judge = await run('judge', 'deberta-v3-large_prm_prm800k', {
        model: random(SHAPES['deberta-v2']),
        lora: 'none',
        'data.train': prm800k,
        'data.max_samples': 30,
        'reward_model.max_steps': 3,
        'eval.max_samples': 20,
      });
      // A policy needs weights; one step of training leaves them as good as random.
      const base = await run('base', 'pretrain_word_problems', {
        model: random(SHAPES.opt),
        'data.word_problems.samples': 100,
        'pretrain.max_steps': 1,
      });
      const problems = join(folder, 'problems');
      await mkdir(problems);
      await copyFile(gsm8k, join(problems, 'gsm8k.jsonl.gz'));
      await copyFile(math, join(problems, 'math.jsonl.gz'));
      const policy = await run('policy', 'opt-1.3b_reinforce_prm800k', {
        model: `{base: ${join(base, 'model')}, tokenizer: base, dtype: f32}`,
        'data.train': problems,
        'data.on_bad_row': 'skip',
        'rollout.max_new_tokens': 24,
        'reward.steps.model': judge,
        'ppo.rollout_batch': 4,
        'ppo.max_iterations': 2,
        'ppo.critic_warmup': 2,
        'ppo.eval_steps': 8,
        'eval.max_samples': 10,
      });
      const steps = (await metrics(policy)).filter(({ phase }) => phase === 'ppo');
      expect(steps.filter((line) => 'reward_steps' in line)).not.toHaveLength(0);
      // What is held out is drawn from both files.
      const { metrics: solved } = JSON.parse(await readFile(join(policy, 'eval.json'), 'utf8'));
      expect(solved).toMatchObject({ 'gsm8k.truncated': 1, 'math.truncated': 1 });
    },
  );
});
