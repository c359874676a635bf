// steptrain label on conversations of agents: by results, by episodes that go on, and by a language model with a rubric.
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, test, vi } from 'vitest';
import { cli } from './run-cli.js';

const folder = mkdtempSync(join(inject('folder'), 'label-turns-'));
const at = (name: string) => join(folder, name);
const lines = (path: string) =>
  readFileSync(path, 'utf8')
    .trimEnd()
    .split('\n')
    .map(
      (line) => JSON.parse(line) as { steps: { label: number | null; score?: number }[]; outcome?: number },
    );

const call = (id: string, name: string, expression: string, tool = 'calculator') => ({
  role: 'assistant',
  content: name,
  tool_calls: [{ id, type: 'function', function: { name: tool, arguments: JSON.stringify({ expression }) } }],
});
const result = (id: string, content: string) => ({ role: 'tool', tool_call_id: id, content });
const question = {
  role: 'user',
  content: 'There are 19 apples with Tom. Then Sue takes 7 from Tom. How many apples are there with Tom?',
};
const right = {
  messages: [
    question,
    call('a', 'Tom', '19 - 7'),
    result('a', '12'),
    { role: 'assistant', content: 'Answer: 12' },
  ],
  answer: '12',
};
/** The first turn leads to no right answer, and the second one asks for something that cannot be computed. */
const wrong = {
  messages: [
    question,
    call('a', 'Tom', '19 + 7'),
    result('a', '26'),
    call('b', 'Tom', '19 ++'),
    result('b', 'cannot compute "19 ++"'),
    { role: 'assistant', content: 'Answer: 26' },
  ],
  answer: '12',
};

beforeAll(() => {
  vi.stubEnv('STEPTRAIN_CACHE', at('cache'));
  const write = (name: string, ...rows: object[]) =>
    writeFileSync(at(name), rows.map((row) => JSON.stringify(row)).join('\n'));
  write('traces.jsonl', right, wrong);
  const failing = { ...wrong, messages: wrong.messages.with(4, result('b', 'Error: exit code 1')) };
  write('failing.jsonl', right, failing);
  write('solution.jsonl', { problem: 'p', steps: ['a'], answer: '1' });
  write('other.jsonl', { ...right, messages: right.messages.with(2, result('a', '13')) });
});
afterAll(() => {
  vi.unstubAllEnvs();
});

describe('label on turns', () => {
  test('by what came back for them, and the answer', async () => {
    const { code, stderr } = await cli(
      'label',
      at('failing.jsonl'),
      '--results',
      '--output',
      at('by-results'),
    );
    expect(stderr).toMatch(/2 solutions, judged by what came back for their turns: nothing is drawn/);
    expect(code).toBe(0);
    const rows = lines(at('by-results/labels.jsonl'));
    expect(rows.map(({ steps }) => steps.map(({ label }) => label))).toEqual([
      [1, 1],
      [1, 0, 0],
    ]);
    expect(rows[0]).toMatchObject({ turns: true, gold_answer: '12' });
  });

  test('by episodes of the agent that go on after each turn, in the environment', async () => {
    const command = [
      ...['label', at('traces.jsonl'), '--environment', 'calculator', '--model', 'word-problems-turns'],
      ...['-k', '6', '--max-new-tokens', '24', '--output', at('by-episodes')],
    ];
    const { code, stderr } = await cli(...command);
    expect(stderr).toMatch(/2 solutions, 5 prefixes, 30 completions of up to 24 tokens/);
    expect(code).toBe(0);
    const rows = lines(at('by-episodes/labels.jsonl'));
    // After the right computation the agent reads off its result; after a wrong one it hardly finds back.
    expect(rows[0]?.steps[0]).toMatchObject({ label: 1 });
    expect(rows[0]?.steps[0]?.score).toBeGreaterThan(0.6);
    expect(rows[1]?.steps[0]?.score).toBeLessThan(0.4);
    // The last turn ends the episode, and the environment says how.
    expect(rows.map(({ steps, outcome }) => [steps.at(-1)?.score, outcome])).toEqual([
      [1, 1],
      [0, 0],
    ]);
  });

  test('by a language model with a rubric, which sees calls and results', async () => {
    const asked: string[] = [];
    const server = createServer((request, response) => {
      let body = '';
      request.on('data', (part) => {
        body += part;
      });
      request.on('end', () => {
        const { messages } = JSON.parse(body) as { messages: { content: string }[] };
        asked.push(messages.map(({ content }) => content).join('\n'));
        const turns = messages[1]?.content.includes('\n3. ') ? 3 : 2;
        const verdicts = Object.fromEntries(
          Array.from({ length: turns }, (_, i) => [i + 1, turns === 3 && i < 2 ? 'incorrect' : 'correct']),
        );
        response.setHeader('content-type', 'application/json');
        response.end(
          JSON.stringify({
            choices: [{ message: { role: 'assistant', content: JSON.stringify(verdicts) } }],
            usage: { prompt_tokens: 5, completion_tokens: 5 },
          }),
        );
      });
    });
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    const { port } = server.address() as AddressInfo;
    try {
      const judge = ['--judge', `http://127.0.0.1:${port}/v1#m`, '--rubric', 'Calls must be short.'];
      const { code, stderr } = await cli('label', at('traces.jsonl'), ...judge, '--output', at('by-judge'));
      expect(stderr).not.toMatch(/rror/);
      expect(code).toBe(0);
    } finally {
      server.close();
    }
    expect(lines(at('by-judge/labels.jsonl')).map(({ steps }) => steps.map(({ label }) => label))).toEqual([
      [1, 1],
      [0, 0, 1],
    ]);
    const first = asked.find((text) =>
      text.includes('1. Tom\n→ calculator({"expression":"19 - 7"})\n← tool: 12\n2. Answer: 12'),
    );
    expect(first).toMatch(
      /turns of an agent[\s\S]*Rubric:\nCalls must be short\.\nTask:\nThere are 19 apples[\s\S]*The right answer: 12/,
    );
  });

  test('solutions on which a judge says nothing that can be read are counted, by label and by score', async () => {
    const server = createServer((request, response) => {
      request.resume();
      request.on('end', () => {
        response.setHeader('content-type', 'application/json');
        response.end(
          JSON.stringify({
            choices: [{ message: { role: 'assistant', content: 'Score: 7' } }],
            usage: { prompt_tokens: 5, completion_tokens: 5 },
          }),
        );
      });
    });
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    const name = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1#m`;
    try {
      const { stderr } = await cli('label', at('traces.jsonl'), '--judge', name, '--output', at('unread'));
      expect(stderr).toMatch(
        /Warning: 2 of them have no label on any step: http:.*#m said nothing that can be/,
      );
      const scored = await cli('score', at('solution.jsonl'), '--model', name);
      expect(scored.stderr).toMatch(/1 solution got no score: the scorer said nothing of any of its steps/);
    } finally {
      server.close();
    }
  });

  test.each([
    [
      'traces.jsonl',
      [],
      /line 1: this row is a conversation with tools, whose turns are labelled by --results, --judge or --environment/,
    ],
    [
      'solution.jsonl',
      ['--results'],
      /line 1: --results labels turns of conversations with tools, and this row is a solution/,
    ],
    [
      'traces.jsonl',
      ['--judge', 'word-problems-judge', '--rubric', 'be strict'],
      /--rubric is for a language model at an address/,
    ],
    [
      'other.jsonl',
      ['--environment', 'calculator', '--model', 'word-problems-turns', '-k', '1'],
      /line 1: the environment failed: it answers turn 1 with \["12"\], and the conversation has \["13"\]/,
    ],
  ])('%s %j: one sentence', async (file, options, sentence) => {
    const model = options.length === 0 ? ['--model', 'word-problems-turns'] : [];
    const { code, stderr } = await cli(
      'label',
      at(file),
      ...model,
      ...options,
      '--output',
      mkdtempSync(at('bad-')),
    );
    expect(code).not.toBe(0);
    expect(stderr).toMatch(sentence);
  });
});
