// A judge of turns, from conversations with tools to scores: by a head at the end of each turn, and by words after a question.
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, test, vi } from 'vitest';
import { solutionsOf } from '../../../src/data/solution-rows.js';
import { turnSegments } from '../../../src/data/turn-segments.js';
import { verdictTokenizer } from '../../../src/data/verdict.js';
import { train } from '../../../src/methods/run.js';
import { verdictSamples } from '../../../src/records/record.js';
import { openScorer } from '../../../src/scoring/open.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { loadTokenizer } from '../../../src/tokenizer/load.js';
import { cli } from '../../cli/run-cli.js';
import { load } from '../../data/data-file.js';
import { TEMPLATE as CHAT } from '../../generate/chat-model.js';
import { openTest } from '../../ops/devices.js';
import { TINY } from './tiny-model.js';

const device = openTest();
let folder: string;
let tokenizer: string;
const TEMPLATE =
  '{% for t in tools or [] %}{{ t.function.name }};{% endfor %}' +
  '{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}<|end|>{% endfor %}' +
  '{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}';

const tools = [{ type: 'function', function: { name: 'f', parameters: {} } }];
/** A turn is right if it says y, whatever the tool says. */
function row(i: number) {
  const right = [0, 1].map((turn) => (i * 7 + turn * 5) % 3 !== 0);
  return {
    messages: [
      { role: 'user', content: `q${i}` },
      {
        role: 'assistant',
        content: null,
        tool_calls: [
          {
            id: 'c',
            type: 'function',
            function: { name: 'f', arguments: JSON.stringify({ x: right[0] ? 'y' : 'n' }) },
          },
        ],
      },
      { role: 'tool', tool_call_id: 'c', content: i % 2 === 0 ? 'y' : 'n' },
      { role: 'assistant', content: right[1] ? 'y' : 'n' },
    ],
    tools,
    turn_rewards: right.map(Number),
  };
}

/** A tokenizer of bytes with the template; `chatModel` alone is removed with its test. */
async function savedTokenizer(template?: string): Promise<string> {
  const directory = mkdtempSync(join(folder, 'tokenizer-'));
  await byteTokenizer().save(directory);
  const path = join(directory, 'tokenizer.json');
  const json = JSON.parse(readFileSync(path, 'utf8')) as { added_tokens: object[] };
  const [special] = json.added_tokens;
  json.added_tokens.push(
    { ...special, id: 259, content: '<|turn|>' },
    { ...special, id: 260, content: '<|end|>' },
  );
  writeFileSync(path, JSON.stringify(json));
  writeFileSync(join(directory, 'chat_template.jinja'), template ?? CHAT);
  return directory;
}

beforeAll(async () => {
  folder = mkdtempSync(join(inject('folder'), 'turns-'));
  vi.stubEnv('STEPTRAIN_CACHE', join(folder, 'cache'));
  vi.spyOn(console, 'error').mockImplementation(() => {});
  tokenizer = await savedTokenizer(TEMPLATE);
  writeFileSync(
    join(folder, 'rows.jsonl'),
    Array.from({ length: 90 }, (_, i) => JSON.stringify(row(i))).join('\n'),
  );
});
afterAll(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  device.dispose();
});

const recipe = (head: string, epochs: number, prompt: object) =>
  ({
    method: 'reward',
    model: { base: { init: TINY }, tokenizer },
    data: { train: join(folder, 'rows.jsonl'), max_length: 256, split: [4, 1, 1] },
    prompt,
    reward_model: {
      head,
      learning_rate: 1e-2,
      num_train_epochs: epochs,
      tokens_per_step: 384,
      after_error: 'keep',
    },
    run: { device: 'cpu', threads: 1 },
  }) as never;

describe('a judge of turns', () => {
  test.each([
    ['scalar', 24, {}],
    ['verdict', 4, { template: 'turns' }],
  ])('with the head %s learns what its turns say', async (head, epochs, prompt) => {
    const { directory } = await train(recipe(head, epochs, prompt), { output: join(folder, head) });
    const { metrics } = JSON.parse(readFileSync(join(directory, 'eval.json'), 'utf8'));
    expect(metrics.auc).toBe(1);
    const scorer = await openScorer(device, directory, {});
    const solutions = [3, 4, 5, 6].flatMap((i) => solutionsOf(row(100 + i)));
    const found = await scorer.score(solutions);
    const verdicts = found?.map(({ scores }) => scores.map((score) => Number((score ?? 0) > 0.5)));
    expect(verdicts).toEqual([3, 4, 5, 6].map((i) => row(100 + i).turn_rewards));
    scorer.dispose();
  });

  test.each([
    ['sft', { sft: { learning_rate: 1e-2, num_train_epochs: 12, tokens_per_step: 384 } }],
    ['verdict_dpo', { verdict_dpo: { num_train_epochs: 1, tokens_per_step: 384 } }],
    ['stepamc', { sft: { num_train_epochs: 1, tokens_per_step: 384 }, verdict_ppo: { max_iterations: 2 } }],
  ])('of the method %s learns from turns', async (method, sections) => {
    const {
      model: initial,
      data,
      run,
    } = recipe('verdict', 1, {}) as Record<'model' | 'data' | 'run', object>;
    // The others go on from the model of the first.
    const model = method === 'sft' ? initial : { base: join(folder, 'sft', 'model') };
    const { directory } = await train(
      { method, model, lora: 'none', data, prompt: { template: 'turns' }, run, ...sections } as never,
      { output: join(folder, method) },
    );
    const lines = readFileSync(join(directory, 'metrics.jsonl'), 'utf8').trim().split('\n');
    const losses = lines.flatMap((line) => JSON.parse(line).loss ?? []);
    expect(losses.length).toBeGreaterThan(2);
    for (const loss of losses) expect(Number.isFinite(loss)).toBe(true);
    const { metrics } = JSON.parse(readFileSync(join(directory, 'eval.json'), 'utf8'));
    // Turns of 15 conversations, without those after a wrong one.
    expect(metrics.n).toBe(24);
    expect(metrics.f1_macro).toBe(1);
  });

  test('reads a turn up to its end, and nothing that came back for it', async () => {
    const own = await loadTokenizer(tokenizer);
    const { records } = await load(join(folder, 'rows.jsonl'));
    const [record] = records;
    if (!record) throw new Error('no record');
    const { trunk, verdicts } = verdictTokenizer({ template: '{problem}\n{steps}\n' }, own).solution(record);
    const upTo = (end: number) => own.decode(trunk.ids.slice(0, end));
    const opening = 'f;<|turn|>user\nq0<|end|><|turn|>assistant\n';
    const first = `${opening}{"name": "f", "arguments": {"x": "n"}}<|end|>`;
    expect(verdicts.map(({ at, label }) => [upTo(at), label])).toEqual([
      [first, 0],
      [`${first}<|turn|>tool\ny<|end|><|turn|>assistant\ny<|end|>`, 1],
    ]);
    expect(trunk.steps.map(({ start }) => upTo(start))).toEqual([
      opening,
      `${first}<|turn|>tool\ny<|end|><|turn|>assistant\n`,
    ]);
    const asked = verdictTokenizer({ template: 'turns' }, own);
    const [sample] = verdictSamples(record);
    if (!sample) throw new Error('no sample');
    expect(own.decode(asked.sample(sample).ids)).toBe(
      `${first}<|turn|>user\nJudge the last turn of the assistant: answer + if it is right and - if it is wrong.<|end|><|turn|>assistant\n-`,
    );
    expect(turnSegments(own, record, { tail: '' }).every(({ train: learned }) => !learned)).toBe(true);
    // A turn that says nothing is judged at the mark that ends it.
    const [, last] = record.steps;
    const silent = {
      text: '',
      label: 0,
      results: [{ role: 'user', content: 'Go on.' }],
      kind: 'normal',
    } as const;
    if (!last) throw new Error('no step');
    const read = verdictTokenizer({ template: '{problem}\n{steps}\n' }, own).solution({
      ...record,
      steps: [silent, last],
    });
    const [nothing] = read.verdicts;
    expect(own.decode(read.trunk.ids.slice(0, nothing?.at))).toBe(`${opening}<|end|>`);
  });

  test('is measured, and shows its turns, by the commands', async () => {
    const run = join(folder, 'scalar');
    const rows = join(folder, 'unseen.jsonl');
    writeFileSync(rows, [103, 104, 105, 106].map((i) => JSON.stringify(row(i))).join('\n'));
    const quality = await cli('eval', 'reward-model', rows, '--model', run, '--json');
    expect(quality.stderr).not.toMatch(/rror/);
    expect(JSON.parse(quality.stdout)).toMatchObject({
      problems: 4,
      trained: 0,
      scored: 8,
      wrong: 3,
      overall: { auc: 1 },
    });
    expect(quality.stdout + quality.stderr).not.toMatch(/trained on/);
    const known = await cli('eval', 'reward-model', join(folder, 'rows.jsonl'), '--model', run);
    expect(known.stdout).toMatch(/\d\d problems of these were trained on: nothing here says/);
    const one = join(folder, 'one.json');
    writeFileSync(one, JSON.stringify(row(103)));
    const judged = await cli('judge', run, one);
    expect(judged.stdout).toMatch(/right +→ f\(\{"x":"y"\}\)\n +← tool: n\n +2 .* wrong +n/);
    const scored = await cli('score', rows, '--model', run, '--output', join(folder, 'scored'));
    expect(scored.code).toBe(0);
    const [first] = readFileSync(join(folder, 'scored', 'scores.jsonl'), 'utf8').split('\n');
    expect(JSON.parse(first ?? '').scores.map(Math.round)).toEqual(row(103).turn_rewards);
    // A record of turns, as `label` writes it, is scored as its conversation, and judged.
    const { records } = await load(rows);
    const written = join(folder, 'records.jsonl');
    writeFileSync(written, records.map((record) => JSON.stringify(record)).join('\n'));
    expect((await cli('score', written, '--model', run, '--output', join(folder, 'again'))).code).toBe(0);
    const scoresIn = (directory: string) =>
      readFileSync(join(folder, directory, 'scores.jsonl'), 'utf8')
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line).scores);
    expect(scoresIn('again')).toEqual(scoresIn('scored'));
    writeFileSync(one, JSON.stringify(records[0]));
    expect((await cli('judge', run, one)).stdout).toBe(judged.stdout);
    const corrected = join(folder, 'corrected');
    const found = await cli(
      'eval',
      'correction',
      join(folder, 'verdict'),
      '--data',
      rows,
      '--output',
      corrected,
    );
    expect(found.stdout).toMatch(/accuracy +100\.0/);
    const [shown] = readFileSync(join(corrected, 'verdicts.jsonl'), 'utf8').split('\n');
    expect(JSON.parse(shown ?? '')).toMatchObject({
      text: '→ f({"x":"y"})',
      results: ['← tool: n'],
      label: 1,
      verdict: 1,
    });
    expect(readFileSync(join(folder, 'verdict', 'report.html'), 'utf8')).toMatch(
      /<span class="text">→ f\(\{&quot;x&quot;:&quot;[yn]&quot;\}\)<\/span><br><span class="hint">← tool: [yn]<\/span>/,
    );
  });

  test('judges a trace of verifiers, and one of its branches at a time', async () => {
    const { messages } = row(103);
    const nodes = messages.map((message, i) => ({
      parent: i === 0 ? null : i - 1,
      message,
      sampled: message.role === 'assistant',
    }));
    const trace = { task: {}, nodes, tools };
    const file = join(folder, 'trace.json');
    const judge = (what: object) => {
      writeFileSync(file, JSON.stringify(what));
      return cli('judge', join(folder, 'scalar'), file);
    };
    expect((await judge(trace)).stdout).toMatch(/right +→ f\(\{"x":"y"\}\)\n +← tool: n\n +2 .* wrong +n/);
    const branch = { ...nodes[3], message: { role: 'assistant', content: 'other' }, parent: 2 };
    const two = await judge({ ...trace, nodes: [...nodes, branch] });
    expect(two.code).not.toBe(0);
    expect(two.stderr).toMatch(
      /trace.json holds 2 conversations, and judge takes one; for all of them: .*score/,
    );
  });

  test('says what to do where template and rows do not fit, and where the template has no tools', async () => {
    const own = await loadTokenizer(tokenizer);
    const { records } = await load(join(folder, 'rows.jsonl'));
    const [record] = records;
    if (!record) throw new Error('no record');
    expect(() => verdictTokenizer({ template: 'chat' }, own).solution(record)).toThrow(
      /asks about steps of a solution, and here are turns of a conversation; a judge of turns is trained with prompt.template: turns/,
    );
    expect(() =>
      verdictTokenizer({ template: 'turns' }, own).solution({
        problem: 'a',
        steps: [{ text: 'b', label: 1, kind: 'normal' }],
      }),
    ).toThrow(/prompt.template "turns" reads conversations, and here is a problem with steps/);
    const toolless = await loadTokenizer(await savedTokenizer());
    expect(() => verdictTokenizer({ template: '{problem}\n{steps}\n' }, toolless).solution(record)).toThrow(
      /rows.jsonl, line 1: the chat template does not read tools/,
    );
  });
});
