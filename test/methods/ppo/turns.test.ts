// Reinforcement over turns: tokens between turns, rewards on turns, and a policy that learns to act in an environment.
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest';
import { solutionAdvantage } from '../../../src/methods/ppo/advantage.js';
import { answeredPrompts } from '../../../src/methods/ppo/sequences.js';
import { train } from '../../../src/methods/run.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { openTest } from '../../ops/devices.js';

const device = openTest();
afterAll(() => device.dispose());

describe('the tokens of episodes', () => {
  const turns = { promptIds: [8, 9], ends: [1, 2], between: [[5, 6], []] };

  it('between turns are read, and only what was drawn has rows', () => {
    const [one] = answeredPrompts([7], 3, [{ tokens: [1, 2, 3], turns }], { budget: 99, branches: true });
    expect(one?.ids).toEqual([8, 9, 1, 2, 5, 6, 3]);
    // The row that predicts a token is the one before it: of the second turn that of the last token between.
    expect(one?.solutions).toEqual([
      {
        rows: [
          { row: 1, token: 1 },
          { row: 2, token: 2 },
          { row: 5, token: 3 },
        ],
        end: 6,
      },
    ]);
  });

  it('share a prompt where their environment opened them alike', () => {
    const other = { ...turns, promptIds: [8, 9, 9] };
    const shared = answeredPrompts(
      [7],
      3,
      [
        { tokens: [1, 2, 3], turns },
        { tokens: [4, 4, 4], turns },
      ],
      { budget: 99, branches: true },
    );
    expect(shared.map(({ ids }) => ids)).toEqual([[8, 9, 1, 2, 5, 6, 3, 4, 4, 5, 6, 4]]);
    const apart = answeredPrompts(
      [7],
      3,
      [
        { tokens: [1, 2, 3], turns },
        { tokens: [4, 4, 4], turns: other },
      ],
      { budget: 99, branches: true },
    );
    expect(apart.map(({ ids }) => ids)).toEqual([
      [8, 9, 1, 2, 5, 6, 3],
      [8, 9, 9, 4, 4, 5, 6, 4],
    ]);
  });
});

describe('rewards on turns', () => {
  const answer = (count: number, values: readonly number[] = []) => ({
    tokens: new Array<number>(count).fill(1),
    oldLogprobs: [],
    refLogprobs: [],
    values,
    samplerLogprobs: [],
    text: '',
    truncated: false,
  });
  const settings = {
    algorithm: 'grpo',
    gamma: 1,
    lam: 1,
    whiten_advantages: false,
    group_baseline: true,
    loss_type: 'dapo',
    truncated: 'lowest',
  } as const;

  it('grpo: those of a group are normalised together, and a token has the sum from its turn on', async () => {
    // Turns of 2 and 1 tokens with rewards 0 and 1; one turn with reward 0.
    const groups = [{ item: 0, answers: [answer(3), answer(1)] }];
    const rewards = [
      [
        { value: 1, byToken: [0, 0, 1], places: [1, 2] },
        { value: 0, byToken: [0], places: [0] },
      ],
    ];
    const [group] = await solutionAdvantage(device, settings).credit(groups, rewards);
    // Mean 1/3; squares 2/3, so that the deviation is √(2/3 / 2) = 0.57735.
    const [high, low] = [2 / 3 / (0.57735 + 1e-4), -1 / 3 / (0.57735 + 1e-4)];
    const close = (values: readonly number[] | undefined, expected: readonly number[]) =>
      expected.forEach((value, i) => {
        expect(values?.[i]).toBeCloseTo(value, 4);
      });
    close(group?.answers[0]?.advantages, [low + high, low + high, high]);
    close(group?.answers[1]?.advantages, [low]);
  });

  it('turn_grpo: returns from a turn on are compared with those of the same turn', async () => {
    // Rewards by turn: (1, 0, 4), (0, 2) and (3); γ = 1/2. Returns: (2, 2, 4), (1, 2) and (3).
    const groups = [{ item: 0, answers: [answer(4), answer(2), answer(2)] }];
    const rewards = [
      [
        { value: 5, byToken: [0, 1, 0, 4], places: [1, 2, 3] },
        { value: 2, byToken: [0, 2], places: [0, 1] },
        { value: 3, byToken: [0, 3], places: [1] },
      ],
    ];
    const of = { ...settings, algorithm: 'turn_grpo', gamma: 0.5 } as const;
    const [group] = await solutionAdvantage(device, of).credit(groups, rewards);
    // First turns: mean 2, deviation 1. Second turns are equal, and nobody else has a third.
    const one = 1 / (1 + 1e-4);
    const expected = [
      [0, 0, 0, 0],
      [-one, 0],
      [one, one],
    ];
    expected.forEach((values, a) => {
      for (const [t, value] of values.entries())
        expect(group?.answers[a]?.advantages[t]).toBeCloseTo(value, 5);
    });
  });

  it('ppo: by a critic, γ and λ over what was drawn alone', async () => {
    const groups = [{ item: 0, answers: [answer(3, [0.5, 0.25, 0])] }];
    const rewards = [[{ value: 3, byToken: [0, 1, 2], places: [1, 2] }]];
    const of = { ...settings, algorithm: 'ppo', gamma: 0.5, lam: 0.5 } as const;
    const [group] = await solutionAdvantage(device, of).credit(groups, rewards);
    // δ = (0 + 0.125 − 0.5, 1 + 0 − 0.25, 2 − 0); A = δ + γλ A of the next.
    expect(group?.answers[0]?.advantages).toEqual([-0.375 + 0.25 * 1.25, 1.25, 2]);
  });

  it('turn_ppo: γ and λ go from turn to turn, from the value in which each begins', async () => {
    // Turns of 2, 3 and 1 tokens, the last without a reward; a KL penalty on a token counts in its turn.
    const groups = [
      {
        item: 0,
        answers: [
          answer(6, [0.5, 9, 0.25, 9, 9, 0.125]),
          { ...answer(2, [1, 9]), truncated: true, endValue: 3 },
        ],
      },
    ];
    const rewards = [
      [
        { value: 3, byToken: [0, 1, -0.5, 0, 2, 0], places: [1, 4] },
        { value: 0, byToken: [0, 0] },
      ],
    ];
    const of = { ...settings, algorithm: 'turn_ppo', gamma: 0.5, lam: 0.5, truncated: 'bootstrap' } as const;
    const [group] = await solutionAdvantage(device, of).credit(groups, rewards);
    // δ = (1 + 0.125 − 0.5, 1.5 + 0.0625 − 0.25, 0 − 0.125); A = δ + γλ A of the next; returns are A + V.
    const third = -0.125;
    const second = 1.3125 + 0.25 * third;
    const first = 0.625 + 0.25 * second;
    expect(group?.answers[0]?.advantages).toEqual([first, first, second, second, second, third]);
    const returns = [first + 0.5, first + 0.5, ...new Array<number>(3).fill(second + 0.25), 0];
    expect(group?.answers[0]?.returns).toEqual(returns);
    // One turn that was cut off goes on from the value of its end: 0 + 0.5 · 3 − 1.
    expect(group?.answers[1]?.advantages).toEqual([0.5, 0.5]);
    expect(group?.answers[1]?.returns).toEqual([1.5, 1.5]);
  });
});

describe('a policy in a world with a hidden state', () => {
  const TEMPLATE =
    '{% for m in messages %}<|turn|>{{ m.role[0] }}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|end|>{% endfor %}' +
    '{% if add_generation_prompt %}<|turn|>a{% endif %}{% if tools and false %}{% endif %}';
  const SHAPE = {
    model_type: 'qwen2',
    hidden_size: 48,
    intermediate_size: 96,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 4,
    max_position_embeddings: 320,
    initializer_range: 0.05,
  };
  let folder: string;
  let tokenizer: string;

  const call = (name: string, given: object) => ({
    role: 'assistant',
    content: '',
    tool_calls: [{ type: 'function', function: { name, arguments: given } }],
  });
  /** Half of the searches read the note and open the box that it names, half guess. */
  function search(i: number) {
    const coin = 1 + ((i >> 1) % 4);
    const ask = { role: 'user', content: 'Find the coin in 4 boxes.' };
    if (i % 2 === 0) return [ask, call('open_box', { number: 1 + ((i >> 2) % 4) })];
    return [
      ask,
      call('read_note', {}),
      { role: 'tool', content: `The coin is in box ${coin}.` },
      call('open_box', { number: coin }),
    ];
  }

  beforeAll(async () => {
    folder = mkdtempSync(join(inject('folder'), 'ppo-turns-'));
    vi.stubEnv('STEPTRAIN_CACHE', join(folder, 'cache'));
    vi.spyOn(console, 'error').mockImplementation(() => {});
    tokenizer = join(folder, 'tokenizer');
    await byteTokenizer().save(tokenizer);
    const path = join(tokenizer, 'tokenizer.json');
    const json = JSON.parse(readFileSync(path, 'utf8')) as { added_tokens: object[] };
    const [special] = json.added_tokens;
    const added = ['<|turn|>', '<|end|>'].map((content, i) => ({ ...special, id: 259 + i, content }));
    const texts = [
      '<tool_call>{"name": "open_box", "arguments": {"number": ',
      '<tool_call>{"name": "read_note", "arguments": {}}</tool_call>',
      '}}</tool_call>',
      'The coin is in box ',
    ];
    json.added_tokens.push(
      ...added,
      ...texts.map((content, i) => ({ ...special, special: false, id: 261 + i, content })),
    );
    writeFileSync(path, JSON.stringify(json));
    const config = join(tokenizer, 'tokenizer_config.json');
    writeFileSync(
      config,
      JSON.stringify({ ...JSON.parse(readFileSync(config, 'utf8')), eos_token: '<|end|>' }),
    );
    writeFileSync(join(tokenizer, 'chat_template.jinja'), TEMPLATE);
    writeFileSync(
      join(folder, 'searches.jsonl'),
      Array.from({ length: 320 }, (_, i) => JSON.stringify({ messages: search(i) })).join('\n'),
    );
    const tasks = Array.from({ length: 64 }, (_, i) => ({
      problem: `Find the coin in 4 boxes.${' '.repeat(0)} #${i}`,
      answer: String(1 + (i % 4)),
    }));
    writeFileSync(join(folder, 'tasks.jsonl'), tasks.map((task) => JSON.stringify(task)).join('\n'));
  });
  afterAll(() => {
    vi.unstubAllEnvs();
    vi.restoreAllMocks();
  });

  it('learns to read the note before it opens a box', async () => {
    const pupil = await train(
      {
        method: 'solution_sft',
        model: { base: { init: SHAPE }, tokenizer },
        data: { train: join(folder, 'searches.jsonl'), max_length: 300, split: [8, 1, 1] },
        solution_sft: { learning_rate: 5e-3, num_train_epochs: 12, batch_size: 16 },
        run: { device: 'cpu', threads: 1 },
      } as never,
      { output: join(folder, 'pupil') },
    );
    const { directory } = await train(
      {
        method: 'grpo',
        model: { base: join(pupil.directory, 'model') },
        data: { train: join(folder, 'tasks.jsonl'), max_length: 300, split: [6, 1, 1] },
        rollout: {
          environment: 'boxes',
          num_generations: 8,
          max_new_tokens: 24,
          max_turns: 4,
          num_generations_eval: 8,
        },
        reward: { rule: { weight: 0 }, environment: { weight: 1 }, placement: 'step' },
        ppo: {
          learning_rate: 1e-3,
          rollout_batch: 8,
          max_iterations: 16,
          num_train_epochs: 3,
          reference: 'none',
          kl_coef: 0,
        },
        run: { device: 'cpu', threads: 1 },
      } as never,
      { output: join(folder, 'grpo') },
    );
    const metrics = readFileSync(join(directory, 'metrics.jsonl'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    const steps = metrics.filter(({ reward_environment: reward }) => reward !== undefined);
    // The training forward reads an episode as the sampler drew it, with what the environment said between.
    expect(steps.map(({ ratio_mean: mean }) => mean)).toEqual(steps.map(() => 1));
    expect(Math.max(...steps.map(({ sampler_difference: nats }) => nats))).toBeLessThan(1e-5);
    const [first, last] = [steps.slice(0, 4), steps.slice(-4)].map(
      (some) => some.reduce((sum, { right }) => sum + right, 0) / 4,
    );
    expect(first).toBeLessThan(0.7);
    expect(last).toBeGreaterThan(0.75);
    const [sample] = readFileSync(join(directory, 'samples.jsonl'), 'utf8').trim().split('\n').slice(-1);
    expect(JSON.parse(sample ?? '').solutions[0]).toMatchObject({
      text: expect.stringMatching(/^→ read_note\(\{\}\)\n← tool: The coin is in box \d\.\n→ open_box/),
      turn_rewards: [null, expect.any(Number)],
      turns: [
        { text: '→ read_note({})', results: [expect.stringMatching(/^← tool: The coin is in box \d\.$/)] },
        {
          text: expect.stringMatching(/^→ open_box/),
          reward: expect.any(Number),
          advantage: expect.any(Number),
        },
      ],
    });
    // Held-out episodes are kept too.
    const [solved] = readFileSync(join(directory, 'problems.jsonl'), 'utf8').split('\n');
    expect(JSON.parse(solved ?? '').samples[0]).toMatchObject({
      turn_rewards: expect.arrayContaining([expect.any(Number)]),
      turns: expect.arrayContaining([
        { text: '→ read_note({})', results: [expect.stringMatching(/^← tool: The coin is in box \d\.$/)] },
      ]),
    });
    const { models } = JSON.parse(readFileSync(join(directory, 'eval.json'), 'utf8'));
    expect(models.after.all['pass@1'].value).toBeGreaterThan(models.before.all['pass@1'].value);
  });

  it('counts a held-out episode as unsolved whose environment failed, and ends where it fails in all', async () => {
    const environment = (name: string, fails: string) => {
      const file = join(folder, `${name}.mjs`);
      writeFileSync(
        file,
        `export default {
          tools: [{ type: 'function', function: { name: 'open_box', parameters: {} } }],
          reset: ({ problem }) => { if (${fails}) throw new Error('no world'); return { messages: [{ role: 'user', content: 'Find the coin in 4 boxes.' }] }; },
          step: () => ({ done: true, reward: 1 }),
        };`,
      );
      return file;
    };
    const run = (name: string, fails: string) =>
      train(
        {
          method: 'grpo',
          model: { base: join(folder, 'pupil', 'model') },
          data: { train: join(folder, 'tasks.jsonl'), max_length: 300, split: [6, 1, 1] },
          rollout: { environment: environment(name, fails), num_generations: 4, max_new_tokens: 24 },
          reward: { rule: { weight: 0 }, environment: { weight: 1 } },
          ppo: { rollout_batch: 8, max_iterations: 1, reference: 'none', kl_coef: 0 },
          run: { device: 'cpu', threads: 1 },
        } as never,
        { output: join(folder, name) },
      );
    const said = vi.mocked(console.error);
    said.mockClear();
    const { directory } = await run('some', 'Number(problem.split("#")[1]) % 2 === 0');
    const sentences = said.mock.calls.flat().join('\n');
    expect(sentences).toMatch(
      /\d of \d episodes count as unsolved, as the environment failed, the first with: .*no world/,
    );
    expect(sentences).toMatch(/\d+ of 32 episodes are left out, as the environment failed/);
    const solved = readFileSync(join(directory, 'problems.jsonl'), 'utf8').trim().split('\n');
    const right = solved.map((line) => JSON.parse(line).samples[0].right);
    expect(right).toEqual(solved.map((line) => Number(JSON.parse(line).problem.split('#')[1]) % 2 === 1));
    await expect(run('all', 'true')).rejects.toThrow(
      /in all \d+ episodes the environment failed, the first with: .*no world; mend it, and go on with --resume/,
    );
  });
});
