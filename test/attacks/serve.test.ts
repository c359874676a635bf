// A server under hostile requests: each gets a sentence, no other one is harmed, and the server goes on.
import { connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import { serve } from '../../src/serve/server.js';
import { metric, post, type TestServer, testServer, until } from '../serve/test-server.js';

const deep = `${'['.repeat(100_000)}${']'.repeat(100_000)}`;
const good = { prompt: 'one', max_tokens: 4, seed: 1 };
const message = { role: 'user', content: 'Why?' };

/** Path, body, status, and what the sentence says. */
type Case = readonly [name: string, path: string, body: unknown, status: number, says: RegExp];

const C = '/v1/completions';
const H = '/v1/chat/completions';

const cases: readonly Case[] = [
  ['an empty body', C, '', 400, /^the body is empty/],
  ['no JSON', C, '{"prompt": ', 400, /^the body is not JSON/],
  ['NaN', C, '{"prompt": "a", "temperature": NaN}', 400, /^the body is not JSON/],
  ['invalid UTF-8', C, Uint8Array.of(0x7b, 0x22, 0xff, 0xfe, 0x22, 0x7d), 400, /^the body is not UTF-8$/],
  ['deep nesting', C, `{"prompt": ${deep}}`, 400, /^the body is nested more than 32 levels deep$/],
  ['a list', C, [good], 400, /^the request: expected an object, found \[/],
  ['null', C, 'null', 400, /^the request: expected an object, found null$/],
  ['no prompt', C, { max_tokens: 3 }, 400, /^prompt: expected a text, a list of token ids/],
  ['a number as prompt', C, { ...good, prompt: 7 }, 400, /^prompt: expected a text/],
  ['no prompts', C, { ...good, prompt: [] }, 400, /^prompt: expected a text/],
  ['an empty prompt of tokens', C, { ...good, prompt: [[]] }, 400, /^prompt: expected a text/],
  ['a mixed prompt', C, { ...good, prompt: [1, 'a', [2]] }, 400, /^prompt: expected a text/],
  [
    'a token that is none',
    C,
    { ...good, prompt: [1, 99_999] },
    400,
    /^prompt: expected token ids from 0 to \d+, found 99999$/,
  ],
  ['a negative token', C, { ...good, prompt: [-1] }, 400, /^prompt: expected a text/],
  [
    'too many prompts',
    C,
    { ...good, prompt: new Array(1000).fill('a') },
    400,
    /^prompt: expected at most 128 samples \(prompts × n\), found 1000$/,
  ],
  ['a huge n', C, { ...good, n: 1e9 }, 400, /^n: expected a whole number from 1 to 128, found 1000000000$/],
  ['n = 0', C, { ...good, n: 0 }, 400, /^n: expected a whole number from 1/],
  ['half an n', C, { ...good, n: 1.5 }, 400, /^n: expected a whole number/],
  [
    'a text as temperature',
    C,
    { ...good, temperature: 'NaN' },
    400,
    /^temperature: expected a number from 0 to \d+, found "NaN"$/,
  ],
  ['a negative temperature', C, { ...good, temperature: -1 }, 400, /^temperature: expected a number/],
  [
    'an infinite temperature',
    C,
    '{"prompt": "a", "temperature": 1e999}',
    400,
    /the number 1e999 is too large/,
  ],
  ['top_p = 0', C, { ...good, top_p: 0 }, 400, /^top_p: expected a number above 0, at most 1, found 0$/],
  ['top_p above 1', C, { ...good, top_p: 2 }, 400, /^top_p: expected a number from 0 to 1, found 2$/],
  ['a text as stream', C, { ...good, stream: 'yes' }, 400, /^stream: expected true or false, found "yes"$/],
  [
    'many stop texts',
    C,
    { ...good, stop: new Array(10_000).fill('a') },
    400,
    /^stop: expected a list of at most 64, found 10000$/,
  ],
  ['an object as stop', C, { ...good, stop: { a: 1 } }, 400, /^stop: expected a list of texts/],
  [
    'a stop token that is none',
    C,
    { ...good, stop_token_ids: [1e6] },
    400,
    /^stop: expected token ids from 0 to \d+, found 1000000$/,
  ],
  [
    'min_tokens above max_tokens',
    C,
    { ...good, min_tokens: 9 },
    400,
    /^min_tokens: expected a whole number from 0 to 4, found 9$/,
  ],
  ['max_tokens = 0', C, { ...good, max_tokens: 0 }, 400, /^max_tokens: expected at least 1/],
  [
    'max_tokens beyond the context',
    C,
    { ...good, max_tokens: 1e15 },
    400,
    /^the model reads 512 tokens, and the prompt has 3 beside up to 1000000000000000 new ones/,
  ],
  [
    'a prompt beyond the context',
    C,
    { ...good, prompt: 'a'.repeat(600) },
    400,
    /^the model reads 512 tokens, and the prompt has 600/,
  ],
  [
    'a prompt far beyond it',
    C,
    { ...good, prompt: 'a'.repeat(1_000_000) },
    400,
    /^the prompt has 1000000 characters, far more than the 512 tokens/,
  ],
  [
    'a body beyond the limit',
    C,
    { ...good, prompt: 'a'.repeat(5_000_000) },
    413,
    /^the body has more than 4194304 bytes/,
  ],
  [
    'many alternatives',
    C,
    { ...good, logprobs: 1e6 },
    400,
    /^logprobs: expected a whole number from 0 to 20/,
  ],
  ['an unknown model', C, { ...good, model: 'gpt-9' }, 404, /^there is no model "gpt-9"; known are pupil$/],
  ['the name of a property', C, { ...good, model: '__proto__' }, 404, /^there is no model "__proto__"/],
  [
    'a field of the prototype',
    C,
    '{"prompt": "a", "__proto__": {"n": 1e9}}',
    400,
    /^__proto__: there is no such field/,
  ],
  [
    'an unknown field',
    C,
    { ...good, temprature: 1 },
    400,
    /^temprature: there is no such field; did you mean temperature\?$/,
  ],
  [
    'a penalty out of range',
    C,
    { ...good, presence_penalty: 3 },
    400,
    /^presence_penalty: expected a number from -2 to 2, found 3$/,
  ],
  [
    'a penalty that divides by nothing',
    C,
    { ...good, repetition_penalty: 0 },
    400,
    /^repetition_penalty: expected a number from 0\.01 to 100, found 0$/,
  ],
  ['a bias that is no number', C, { ...good, logit_bias: { 5: 'x' } }, 400, /^logit_bias: expected numbers/],
  [
    'a bias of no token',
    C,
    { ...good, logit_bias: { constructor: 1 } },
    400,
    /^logit_bias: expected numbers/,
  ],
  ['a bias of a list', C, { ...good, logit_bias: [1, 2] }, 400, /^logit_bias: expected numbers/],
  [
    'stream options without a stream',
    C,
    { ...good, stream_options: {} },
    400,
    /^stream_options: expected it only beside stream: true/,
  ],
  ['the best of several', C, { ...good, best_of: 3 }, 400, /^best_of: expected 1, as this server does not/],
  ['half a seed', C, { ...good, seed: 1.5 }, 400, /^seed: expected a whole number, found 1\.5$/],
  [
    'numbers of other prompts',
    C,
    { ...good, prompt_ids: [1, 2] },
    400,
    /^prompt_ids: expected a number for each of the 1 prompts, found 2$/,
  ],
  ['no messages', H, {}, 400, /^messages: expected a list of at least one message/],
  ['a text as messages', H, { messages: 'hi' }, 400, /^messages: expected a list of messages, found "hi"$/],
  [
    'a message without a role',
    H,
    { messages: [{ content: 'a' }] },
    400,
    /^messages\[0\]\.role: expected a text, found nothing$/,
  ],
  [
    'a misspelt role',
    H,
    { messages: [{ role: 'assistent', content: 'a' }] },
    400,
    /^messages\[0\]\.role: expected system, developer, user, assistant, tool or another role of the template, found "assistent"; did you mean assistant\?$/,
  ],
  [
    'a message of numbers',
    H,
    { messages: [{ role: 'user', content: 5 }] },
    400,
    /^messages\[0\]\.content: expected a text, or a list of parts/,
  ],
  [
    'an image',
    H,
    { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: {} }] }] },
    400,
    /type: expected "text", as the model reads text alone/,
  ],
  [
    'a tool',
    H,
    { messages: [message], tools: [{}] },
    400,
    /^tools: expected a list of functions, found \[\{\}\]$/,
  ],
  [
    'a tool of a template without tools',
    H,
    { messages: [message], tools: [{ type: 'function', function: { name: 'add' } }] },
    400,
    /^tools: the chat template of this model knows no tools, and would leave them out; send none$/,
  ],
  [
    'a tool that must be called',
    H,
    { messages: [message], tool_choice: 'required' },
    400,
    /^tool_choice: this server reads the calls that the model writes and forces none; expected "auto" or "none"$/,
  ],
  [
    'calls in a history of a template without tools',
    H,
    {
      messages: [
        message,
        { role: 'assistant', content: null, tool_calls: [{ function: { name: 'add', arguments: '{}' } }] },
      ],
    },
    400,
    /^messages\[1\]\.tool_calls: the chat template of this model knows no tools/,
  ],
  [
    'calls with arguments that are no JSON',
    H,
    {
      messages: [
        message,
        { role: 'assistant', tool_calls: [{ function: { name: 'add', arguments: '{"a' } }] },
      ],
    },
    400,
    /^messages\[1\]\.tool_calls\[0\]\.function\.arguments: expected an object in JSON, found/,
  ],
  [
    'a user who says nothing',
    H,
    { messages: [{ role: 'user', content: null }] },
    400,
    /^messages\[0\]\.content: expected a text/,
  ],
  [
    'a reply that goes on and begins',
    H,
    { messages: [message], continue_final_message: true, add_generation_prompt: true },
    400,
    /^continue_final_message: expected it only beside add_generation_prompt: false/,
  ],
  [
    'a format',
    H,
    { messages: [message], response_format: { type: 'json_object' } },
    400,
    /^response_format: this server gives the samples and log-probabilities of models in training and evaluation/,
  ],
  [
    'alternatives without logprobs',
    H,
    { messages: [message], top_logprobs: 2 },
    400,
    /^top_logprobs: expected it only beside logprobs: true/,
  ],
  [
    'a long conversation',
    H,
    { messages: new Array(5000).fill(message) },
    400,
    /^messages: expected a list of at most 4096, found 5000$/,
  ],
  [
    'an adapter without a folder for them',
    '/v1/load_lora_adapter',
    { lora_name: 'a', lora_path: '/etc' },
    403,
    /^this server loads no adapters/,
  ],
  [
    'an adapter that is not there',
    '/v1/unload_lora_adapter',
    { lora_name: 'a' },
    404,
    /^lora_name: there is no adapter "a"$/,
  ],
  ['an unknown path', '/v1/embeddings', good, 404, /^there is no \/v1\/embeddings; known are /],
  ['a GET path', '/v1/models', good, 405, /^\/v1\/models is asked with GET, not POST$/],
];

async function stillAnswers(server: TestServer): Promise<void> {
  const { status, json } = await post(`${server.url}${C}`, good);
  expect([status, json.choices[0]?.finish_reason]).toEqual([200, expect.stringMatching(/length|stop/)]);
  expect(server.errors).toEqual([]);
}

describe('a request that cannot be answered', () => {
  it('gets a sentence, and the next one its answer', async () => {
    const server = await testServer();
    // While they come, somebody else's request goes on.
    const beside = post(`${server.url}${C}`, { ...good, max_tokens: 200, ignore_eos: true, n: 4 });
    for (const [name, path, body, status, says] of cases) {
      const answer = await post(`${server.url}${path}`, body);
      expect([name, answer.status, answer.json.error?.message]).toEqual([
        name,
        status,
        expect.stringMatching(says),
      ]);
      expect(answer.json.error.type).toBe('invalid_request_error');
    }
    expect((await beside).json.usage.completion_tokens).toBe(800);
    await stillAnswers(server);
  });

  it('such as one of another type, compressed, or from a web page of another name', async () => {
    const server = await testServer();
    const ask = (headers: Record<string, string>) => post(`${server.url}${C}`, good, headers);
    expect(await ask({ 'content-type': 'text/plain' })).toMatchObject({ status: 415 });
    expect(await ask({ 'content-encoding': 'gzip' })).toMatchObject({ status: 415 });
    const raw = await talk(
      server,
      `GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n`,
    );
    expect(raw).toMatch(/^HTTP\/1\.1 403 [\s\S]*this server is asked as localhost or 127\.0\.0\.1 alone/);
    await stillAnswers(server);
  });

  it('such as one without the key', async () => {
    const server = await testServer({ key: 'secret' });
    const ask = (headers: Record<string, string>) => post(`${server.url}${C}`, good, headers);
    for (const authorization of ['', 'Bearer ', 'Bearer secre', 'Bearer secret2', 'Basic secret'])
      expect(await ask({ authorization })).toMatchObject({
        status: 401,
        json: { error: { code: 'invalid_api_key' } },
      });
    expect((await ask({ authorization: 'Bearer secret' })).status).toBe(200);
    expect((await fetch(`${server.url}/health`)).status).toBe(200);
    expect((await fetch(`${server.url}/metrics`)).status).toBe(401);
  });
});

/** What comes back for bytes on a connection, until it closes. */
function talk({ url }: TestServer, ...pieces: readonly string[]): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    let answer = '';
    const socket = connect(Number(port), hostname, async () => {
      for (const piece of pieces) {
        socket.write(piece);
        await new Promise((next) => setTimeout(next, 20));
      }
    });
    socket.on('data', (data) => {
      answer += data;
    });
    socket.on('error', () => {});
    socket.on('close', () => resolve(answer));
  });
}

describe('a connection', () => {
  it('that is no HTTP gets a sentence', async () => {
    const server = await testServer();
    expect(await talk(server, 'hello\r\n\r\n')).toMatch(/^HTTP\/1\.1 400 [\s\S]*this is not an HTTP request/);
    const headers = `GET / HTTP/1.1\r\nX: ${'a'.repeat(20_000)}\r\n\r\n`;
    expect(await talk(server, headers)).toMatch(/^HTTP\/1\.1 431 [\s\S]*the headers have more than 16 KiB/);
    await stillAnswers(server);
  });

  it('that sends too slowly ends, in its headers and in its body', async () => {
    const server = await testServer({ limits: { requestSeconds: 0.2 } });
    const began = 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n';
    const [inHeaders, inBody] = await Promise.all([
      talk(server, began),
      talk(server, `${began}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n`, '{"prompt'),
    ]);
    expect(inHeaders).toMatch(/^HTTP\/1\.1 408 [\s\S]*the request came too slowly/);
    expect(inBody).toMatch(/^HTTP\/1\.1 408 [\s\S]*the request came too slowly/);
    await stillAnswers(server);
  });

  it('that promises a large body is not waited for', async () => {
    const server = await testServer();
    const head = 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n';
    expect(await talk(server, `${head}Content-Length: 99999999999\r\n\r\n{`)).toMatch(/^HTTP\/1\.1 413 /);
    const chunked = `${head}Transfer-Encoding: chunked\r\n\r\n`;
    const piece = `${(1 << 20).toString(16)}\r\n${' '.repeat(1 << 20)}\r\n`;
    expect(await talk(server, chunked, ...new Array(6).fill(piece))).toMatch(/^HTTP\/1\.1 413 /);
    await stillAnswers(server);
  });

  it.each([
    ['stream', true],
    ['whole answer', false],
  ])('that does not read its %s is ended, and its samples with it', async (_, stream) => {
    const server = await testServer({ limits: { stallSeconds: 0.1 } });
    const { hostname, port } = new URL(server.url);
    const body = JSON.stringify({
      prompt: 'a',
      max_tokens: 450,
      n: 64,
      stream,
      ignore_eos: true,
      logprobs: 20,
    });
    const socket = connect(Number(port), hostname);
    socket.on('error', () => {});
    socket.pause();
    socket.write(
      `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    await until(async () => (await metric(server.url, 'steptrain_requests_cancelled_total')) === 1);
    await until(async () => (await metric(server.url, 'steptrain_rows{state="running"}')) === 0);
    socket.destroy();
    await stillAnswers(server);
  });
});

it('a full queue sends further requests away for a while, and what waits is answered', async () => {
  const server = await testServer({ maxRows: 2, limits: { queue: 4 } });
  // All arrive at once, and each runs far longer than that takes: none of them has to be caught running.
  const ask = () => post(`${server.url}${C}`, { ...good, max_tokens: 400, ignore_eos: true, n: 2 });
  const answers = await Promise.all(Array.from({ length: 9 }, ask));
  const refused = answers.filter(({ status }) => status === 429);
  expect(refused.length).toBeGreaterThan(0);
  expect(refused[0]).toMatchObject({ json: { error: { type: 'rate_limit_error', code: 'queue_full' } } });
  expect(refused[0]?.headers.get('retry-after')).toBe('1');
  for (const { status, json } of answers) if (status === 200) expect(json.usage.completion_tokens).toBe(800);
  expect(answers.filter(({ status }) => status === 200).length).toBe(answers.length - refused.length);
  await stillAnswers(server);
});

it('an address beyond this machine needs a key', async () => {
  const { served } = await testServer();
  await expect(serve(served, { host: '0.0.0.0', port: 0 })).rejects.toThrow(
    'serve: 0.0.0.0 can be reached from other machines: give a key, or listen on 127.0.0.1',
  );
  await expect(serve(served, { port: 0, key: '' })).rejects.toThrow('serve: the key is empty');
});
