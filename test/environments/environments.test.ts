// Environments of the package, in a process and behind HTTP; what they say of bad input.
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, expect, inject, it, onTestFinished } from 'vitest';
import { computed } from '../../src/data/equations/calculator.js';
import { readTurn } from '../../src/environments/calls.js';
import { openEnvironment } from '../../src/environments/open.js';
import { exactText } from '../../src/files/exact-json.js';

describe('the calculator', () => {
  it.each([
    ['12 + 7', '19'],
    ['(1 + 2) * 3 - 4', '5'],
    ['7 / 2', '3.5'],
    ['-7 / 8', '-0.875'],
    ['1 / 3', '1/3'],
    ['2 ^ 10', '1024'],
    ['0.1 + 0.2', '0.3'],
    ['99999999999 * 99999999999', '9999999999800000000001'],
    ['19 mod 3', '1'],
  ])('%s is %s', (expression, value) => expect(computed(expression)).toBe(value));

  it.each(['1 / 0', '1 mod 0', '1 +', 'import os', '2 apples + 3', '(((', '9 ^ 9 ^ 9'])(
    'computes no %s',
    (expression) => expect(computed(expression)).toMatch(/^cannot compute/),
  );
});

describe('calls in what a model writes', () => {
  const calls = [{ name: 'f', arguments: { a: 1 } }];
  it.each([
    ['Hermes', 'Look.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', 'Look.'],
    ['Llama 3', '{"name": "f", "parameters": {"a": 1}}', ''],
    ['Mistral', '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]', ''],
    ['one that is cut off after its JSON', '<tool_call>{"name": "f", "arguments": {"a": 1}}', ''],
  ])('%s', (_, text, said) => expect(readTurn(text)).toEqual({ text: said, calls, unread: [] }));

  it('reads texts with the marks of calls in them, and numbers with their digits', () => {
    const given = '{"t":"</tool_call> [TOOL_CALLS] \\"}","n":12345678901234567891,"x":2.0}';
    for (const text of [
      `<tool_call>{"name":"f","arguments":${given}}</tool_call>`,
      `[TOOL_CALLS][{"name":"f","arguments":${given}}]`.replace('</tool_call>', ''),
    ]) {
      const { text: said, calls, unread } = readTurn(text);
      expect([said, calls.length, unread]).toEqual(['', 1, []]);
      expect(text).toContain(exactText(calls[0]?.arguments));
    }
  });

  describe('of Qwen 3.5', () => {
    const called = (...parameters: readonly string[]) =>
      `<tool_call>\n<function=f>\n${parameters.join('\n')}\n</function>\n</tool_call>`;
    const of = (name: string, text: string) => `<parameter=${name}>\n${text}\n</parameter>`;
    const tools = (properties: unknown) => [
      { type: 'function', function: { name: 'f', parameters: { type: 'object', properties } } },
    ];
    const { texts, rows } = JSON.parse(
      readFileSync(join(import.meta.dirname, '../golden/tool-parameters.json'), 'utf8'),
    ) as {
      texts: string[];
      rows: { schema: unknown; read: { text?: true; value?: unknown }[] }[];
    };

    it.each(rows)(
      'reads a parameter by the schema of its tool, as vLLM does: $schema',
      ({ schema, read }) => {
        for (const [i, text] of texts.entries()) {
          const { calls, unread } = readTurn(called(of('a', text)), tools({ a: schema }));
          const { a } = (calls[0]?.arguments ?? {}) as { a?: unknown };
          const value = read[i]?.text ? text : read[i]?.value;
          // Whole numbers beyond 2^53 stay exact.
          expect([text, typeof a === 'bigint' ? Number(a) : a, unread]).toEqual([text, value, []]);
        }
      },
    );

    it('keeps the digits of numbers, and a text that no schema describes', () => {
      const text = called(of('n', '12345678901234567891'), of('x', '2.0'), of('zip', '01234'));
      const { calls } = readTurn(text, tools({ n: { type: 'integer' }, x: { type: 'number' } }));
      expect(exactText(calls[0]?.arguments)).toBe('{"n":12345678901234567891,"x":2.0,"zip":"01234"}');
    });

    it('reads a parameter whose end is missing before another, and refuses one that has no end', () => {
      expect(readTurn(called('<parameter=a>\n1', of('b', '2'))).calls).toEqual([
        { name: 'f', arguments: { a: '1', b: '2' } },
      ]);
      for (const text of [called('<parameter=a>\n1'), called('{"a": 1}')])
        expect(readTurn(text)).toMatchObject({
          calls: [],
          unread: [expect.stringMatching(/^the call of f has .* beside <parameter/)],
        });
    });
  });

  it('reads a call after one that is no JSON', () => {
    const text =
      '<tool_call>{"name":"f"} x</tool_call> and <tool_call>{"name":"f","arguments":{"a":1}}</tool_call>';
    expect(readTurn(text)).toMatchObject({ text: 'and', calls, unread: [expect.stringContaining('is no')] });
  });

  it('leaves other texts, also JSON that is no call, as they are', () => {
    for (const text of ['It is {5}.', '{"answer": 5}', ''])
      expect(readTurn(text)).toEqual({ text, calls: [], unread: [] });
  });
});

const PROGRAM = `
const { createInterface } = require('node:readline');
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, op, task, turn, episode } = JSON.parse(line);
  const say = (answer) => console.log(JSON.stringify({ id, ...answer }));
  if (op === 'tools') say({ tools: [{ type: 'function', function: { name: 'f' } }] });
  if (op === 'reset' && task.kind === 'refuse') return say({ error: 'no such task' });
  if (op === 'reset') say({ messages: [{ role: 'user', content: task.kind + ' ' + process.pid }] });
  if (op === 'step' && turn.text === 'die') { console.error('Traceback\\nKeyError: 7'); process.exit(3); }
  if (op === 'step' && turn.text === 'babble') return console.log('hello');
  if (op === 'step') say({ done: true, reward: 0.5 });
});`;

async function programEnvironment() {
  const file = join(mkdtempSync(join(inject('folder'), 'environment-')), 'program.cjs');
  writeFileSync(file, PROGRAM);
  const environment = await openEnvironment(`${process.execPath} ${file}`);
  onTestFinished(() => environment.dispose?.());
  return environment;
}
const say = (text: string) => ({ text, calls: [] });

describe('an environment in a process', () => {
  it('gives its tools, opens episodes and answers turns', async () => {
    const environment = await programEnvironment();
    expect(environment.tools).toEqual([{ type: 'function', function: { name: 'f' } }]);
    expect(await environment.reset({ kind: 'good' }, 'a')).toMatchObject({ messages: [{ role: 'user' }] });
    expect(await environment.step(say('x'), 'a')).toMatchObject({ done: true, reward: 0.5 });
    await expect(environment.reset({ kind: 'refuse' }, 'b')).rejects.toThrow(/^no such task$/);
  });

  it('that dies says so with its last words, and is there again for the next episode', async () => {
    const environment = await programEnvironment();
    await environment.reset({ kind: 'one' }, 'a');
    await environment.reset({ kind: 'two' }, 'b');
    await expect(environment.step(say('die'), 'a')).rejects.toThrow(
      /program.cjs" ended with exit code 3: KeyError: 7$/,
    );
    await expect(environment.step(say('x'), 'b')).rejects.toThrow(/ended with exit code 3/);
    await environment.reset({ kind: 'three' }, 'c');
    expect(await environment.step(say('x'), 'c')).toMatchObject({ reward: 0.5 });
  });

  it('that writes what is no answer is ended', async () => {
    const environment = await programEnvironment();
    await environment.reset({ kind: 'one' }, 'a');
    await expect(environment.step(say('babble'), 'a')).rejects.toThrow(
      /wrote a line that is no answer in JSON: "hello"/,
    );
  });

  it('that does not start', async () => {
    await expect(openEnvironment('/no/such/program')).rejects.toThrow(
      /the environment "\/no\/such\/program" ended with exit code 127/,
    );
  });
});

describe('an environment behind HTTP', () => {
  it('is asked as a process is', async () => {
    const server = createServer((request, response) => {
      let body = '';
      request.on('data', (part) => {
        body += part;
      });
      request.on('end', () => {
        const { op } = JSON.parse(body) as { op: string };
        const answers: Record<string, object> = {
          tools: { tools: [] },
          reset: { messages: [{ role: 'user', content: 'x' }] },
        };
        if (op === 'step') response.writeHead(500).end('oops');
        else response.end(JSON.stringify(answers[op] ?? {}));
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const environment = await openEnvironment(url);
    expect(await environment.reset({}, 'a')).toEqual({ messages: [{ role: 'user', content: 'x' }] });
    await expect(environment.step(say('x'), 'a')).rejects.toThrow(/answered 500 with "oops"/);
    await expect(openEnvironment('http://127.0.0.1:9/')).rejects.toThrow(
      /the environment at http:\/\/127.0.0.1:9\/ does not answer/,
    );
  });
});

describe('openEnvironment', () => {
  it('opens a module of ones own, and refuses one that exports no environment', async () => {
    const folder = mkdtempSync(join(inject('folder'), 'environment-'));
    const good = join(folder, 'good.mjs');
    writeFileSync(good, 'export default { tools: [], reset: () => ({ messages: [] }), step: () => ({}) };');
    expect((await openEnvironment(good)).tools).toEqual([]);
    const made = join(folder, 'made.mjs');
    writeFileSync(made, 'export default async () => ({ reset() {}, step() {} });');
    expect(Object.keys(await openEnvironment(made))).toEqual(['reset', 'step']);
    const bad = join(folder, 'bad.mjs');
    writeFileSync(bad, 'export default { reset() {} };');
    await expect(openEnvironment(bad)).rejects.toThrow(/has no default export with reset and step/);
    await expect(openEnvironment('calculater')).rejects.toThrow(
      /there is no environment "calculater"; did you mean calculator\?/,
    );
  });
});
