// Conversations as clients write them and send them back: what the template gets, and what it would leave out.
import OpenAI from 'openai';
import { describe, expect, it } from 'vitest';
import { exactText, parseExact } from '../../src/files/exact-json.js';
import { chatRequest } from '../../src/serve/chat-request.js';
import { RequestFields } from '../../src/serve/request-fields.js';
import { TEMPLATE } from '../generate/chat-model.js';
import { post, testServer } from './test-server.js';

const question = { role: 'user', content: 'Why?' };

const parsed = (body: object) =>
  chatRequest(new RequestFields({ messages: [question], ...body }), { samples: 8 });

const messagesOf = (...messages: object[]) => parsed({ messages }).messages;

/** As OpenAI's packages and vLLM give it back. */
const reply = {
  role: 'assistant',
  content: 'So.',
  refusal: null,
  annotations: [],
  audio: null,
  function_call: null,
  tool_calls: [],
  reasoning_content: null,
};

/** A template that knows tools, as Qwen2.5's does in more words. */
const WITH_TOOLS =
  "{% if tools %}{{ 'TOOLS' + (tools | tojson) + '\\n' }}{% endif %}" +
  "{% for message in messages %}{{ '<|turn|>' + message.role + '\\n' + message.content }}" +
  '{% for call in message.tool_calls or [] %}{{ "CALL" + call.function.name + (call.function.arguments | tojson) }}{% endfor %}' +
  "{{ '<|end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|turn|>assistant\\n' }}{% endif %}";

const add = { type: 'function', function: { name: 'add', parameters: { type: 'object' } } };

/** The text of the prompt that a request becomes. */
async function promptOf(body: object, template?: string): Promise<string> {
  const server = await testServer({}, template);
  const asked = exactText({ max_tokens: 1, return_token_ids: true, ...body });
  const { status, json } = await post(`${server.url}/v1/chat/completions`, asked);
  if (status !== 200) return json.error.message;
  return server.served.tokenizer.decode((json as unknown as { prompt_token_ids: number[] }).prompt_token_ids);
}

describe('messages', () => {
  it('as a client sends them back: what is null or empty is nothing', () => {
    expect(messagesOf(question, reply)).toEqual([question, { role: 'assistant', content: 'So.' }]);
    const links = {
      type: 'url_citation',
      url_citation: { url: 'a', title: 'b', start_index: 0, end_index: 1 },
    };
    expect(messagesOf({ ...reply, annotations: [links] })).toEqual([{ role: 'assistant', content: 'So.' }]);
  });

  it('are lists of parts to a template that reads them, and one text to others', async () => {
    const content = ['Look', 'here'].map((text) => ({ type: 'text', text }));
    const messages = [{ role: 'user', content }];
    expect(messagesOf(...messages)).toEqual([
      { role: 'user', content: 'Look\nhere', parts: ['Look', 'here'] },
    ]);
    expect(await promptOf({ messages })).toBe('<|turn|>user\nLook\nhere<|end|>\n<|turn|>assistant\n');
    const reads = TEMPLATE.replace('message.content', "(message.content | map(attribute='text') | join)");
    expect(await promptOf({ messages }, reads)).toBe('<|turn|>user\nLookhere<|end|>\n<|turn|>assistant\n');
  });

  it('keep what was thought and called, as templates read it', () => {
    const call = { id: 'c1', type: 'function', function: { name: 'add', arguments: '{"a": 1}' } };
    expect(
      messagesOf(
        { ...reply, content: null, reasoning_content: 'Hm.', tool_calls: [call] },
        { role: 'tool', tool_call_id: 'c1', content: '3' },
      ),
    ).toEqual([
      {
        role: 'assistant',
        content: '',
        reasoning_content: 'Hm.',
        tool_calls: [{ ...call, function: { name: 'add', arguments: { a: 1 } } }],
      },
      { role: 'tool', content: '3', tool_call_id: 'c1' },
    ]);
  });
});

it('fields that ask for nothing are accepted', () => {
  const nothing = {
    tools: [],
    modalities: ['text'],
    functions: [],
    audio: null,
    response_format: { type: 'text' },
    documents: [],
    what_another_server_has: null,
  };
  expect(parsed({ ...nothing, tool_choice: 'auto', stop: '' }).sampling.stop).toEqual([]);
});

describe('tools', () => {
  it('go to a template that knows them, with the calls of the history', async () => {
    const calls = [{ id: 'c1', type: 'function', function: { name: 'add', arguments: '{"a": 1}' } }];
    const messages = [question, { role: 'assistant', content: null, tool_calls: calls }];
    expect(await promptOf({ messages, tools: [add] }, WITH_TOOLS)).toBe(
      'TOOLS[{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]\n' +
        '<|turn|>user\nWhy?<|end|>\n<|turn|>assistant\nCALLadd{"a": 1}<|end|>\n<|turn|>assistant\n',
    );
    // TRL's client sends "none" with its tools, since vLLM shows them to the model then too.
    expect(await promptOf({ messages: [question], tools: [add], tool_choice: 'none' }, WITH_TOOLS)).toMatch(
      /^TOOLS\[.*"add".*\]\n<\|turn\|>user\nWhy\?/,
    );
  });

  it('have calls whose arguments are an object in JSON, or nothing', async () => {
    const calling = (given: unknown) => {
      const calls = [{ id: 'c1', type: 'function', function: { name: 'add', arguments: given } }];
      return promptOf({ messages: [question, { ...reply, content: '', tool_calls: calls }] }, WITH_TOOLS);
    };
    for (const nothing of ['', ' ', null, '{}', {}]) expect(await calling(nothing)).toContain('CALLadd{}');
    for (const other of ['5', '2.0', '12345678901234567890', '[1]', '"{}"', 'null', '{"a": ', 5, [1]])
      expect(await calling(other)).toMatch(
        /^messages\[1\]\.tool_calls\[0\]\.function\.arguments: expected an object in JSON, found /,
      );
  });

  it('keep digits and kind of their numbers', async () => {
    const name = 'set';
    const whole = {
      type: 'function',
      function: { name, arguments: '{"a": 2.0, "b": 12345678901234567890}' },
    };
    const tool = { type: 'function', function: { name, parameters: { maximum: 0 } } };
    const messages = [question, { role: 'assistant', content: null, tool_calls: [whole] }];
    const body = JSON.stringify({ messages, tools: [tool] }).replace('"maximum":0', '"maximum":10.0');
    expect(await promptOf(Object(parseExact(body)), WITH_TOOLS)).toBe(
      'TOOLS[{"type": "function", "function": {"name": "set", "parameters": {"maximum": 10.0}}}]\n' +
        '<|turn|>user\nWhy?<|end|>\n<|turn|>assistant\nCALLset{"a": 2.0, "b": 12345678901234567890}<|end|>\n<|turn|>assistant\n',
    );
  });
});

it('variables go to a template that reads them, and are refused by one that does not', async () => {
  const thinking = `${TEMPLATE}{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}`;
  const asked = (name: string) =>
    promptOf({ messages: [question], chat_template_kwargs: { [name]: false } }, thinking);
  expect(await asked('enable_thinking')).toMatch(/<\|turn\|>assistant\nFalse$/);
  const unread = 'the chat template of this model does not read it; leave it out';
  // A key of messages, a filter, what the conversation gives, and what is no name are none of its variables.
  for (const name of ['enable_thinkin', 'content', 'defined', 'messages', 'add_generation_prompt', '('])
    expect(await asked(name)).toBe(`chat_template_kwargs.${name}: ${unread}`);
});

it('variables stand before special tokens and documents, as in transformers', async () => {
  const template = `{{ bos_token }}{{ documents }}${TEMPLATE}`;
  const variables = { bos_token: 'B', documents: ['D'] };
  expect(await promptOf({ messages: [question], chat_template_kwargs: variables }, template)).toMatch(
    /^B\['D'\]<\|turn\|>user/,
  );
});

describe('a developer', () => {
  const messages = [{ role: 'developer', content: 'Be brief.' }, question];

  it('speaks as the system where the template does not know the role', async () => {
    expect(await promptOf({ messages })).toBe(
      '<|turn|>system\nBe brief.<|end|>\n<|turn|>user\nWhy?<|end|>\n<|turn|>assistant\n',
    );
  });

  it('is never left out, nor is another role', async () => {
    const some = (roles: string) =>
      TEMPLATE.replace('in messages', `in messages if message.role in [${roles}]`);
    expect(await promptOf({ messages }, some("'user'"))).toMatch(
      /^messages: the chat template 'default' leaves one out of these 2 messages \(the role "developer" is none of its own/,
    );
    const critic = [question, { role: 'critic', content: 'Wrong.' }];
    expect(await promptOf({ messages: critic }, some("'user', 'assistant'"))).toMatch(
      /the role "critic" is none/,
    );
    expect(await promptOf({ messages: critic })).toContain('<|turn|>critic\nWrong.<|end|>');
  });
});

describe('a history', () => {
  const messages = [question, { role: 'assistant', content: 'So.' }, { role: 'user', content: 'Why not?' }];
  const refused = (at: number, role: string) =>
    `messages: the chat template 'default' leaves one out of these 3 messages (nothing of message ${at}, of the role "${role}", ` +
    'is in its text; leave that out, or take a model whose template shows it)';

  it('is refused where the template shows the last message alone, though a short one may stand there by chance', async () => {
    const last = "{{ messages[-1]['content'] }}{{ '\\n' }}";
    expect(await promptOf({ messages }, last)).toBe(refused(1, 'user'));
    expect(await promptOf({ messages: [{ role: 'user', content: 'Why not? '.repeat(3) }] }, last)).toMatch(
      /not/,
    );
    const said = TEMPLATE.replace('in messages', "in messages if message.role != 'assistant'");
    expect(await promptOf({ messages }, said)).toBe(refused(2, 'assistant'));
  });

  it('is refused where a system message in the middle is passed over, and taken where that is first', async () => {
    // Harmony's template, of gpt-oss, reads the first message alone as one of the system.
    const harmony =
      "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}" +
      TEMPLATE.replace('in messages', "in messages if message.role != 'system'");
    const system = { role: 'system', content: 'Answer in one word, whatever comes.' };
    expect(await promptOf({ messages: [system, question] }, harmony)).toMatch(/^Answer in one word/);
    expect(await promptOf({ messages: [question, system, question] }, harmony)).toBe(refused(2, 'system'));
  });

  it('may be shortened and rewritten', async () => {
    const past = "{% set c = message.content.split('</think>')[-1] | upper %}";
    const rewritten = TEMPLATE.replace('message.content', 'c').replace('{{', `${past}{{`);
    const thought = { role: 'assistant', content: '<think>Hm, a long thought.</think>So.' };
    expect(await promptOf({ messages: [question, thought, question] }, rewritten)).toContain(
      'assistant\nSO.<|end|>',
    );
  });

  it('may have a call for the text beside it, as in Llama 3.1', async () => {
    const calls = [{ type: 'function', function: { name: 'add', arguments: '{}' } }];
    const template = TEMPLATE.replace(
      'message.content',
      "('CALL' if message.tool_calls else message.content)",
    );
    const calling = { role: 'assistant', content: 'I will look that up.', tool_calls: calls };
    expect(await promptOf({ messages: [question, calling, question] }, template)).toContain('\nCALL<|end|>');
  });
});

describe('a reply that is begun', () => {
  const messages = [question, { role: 'assistant', content: 'Because 12-6= ' }];
  const prefill = { messages, add_generation_prompt: false, continue_final_message: true };

  it('goes on where its text ends', async () => {
    expect(await promptOf(prefill)).toBe('<|turn|>user\nWhy?<|end|>\n<|turn|>assistant\nBecause 12-6= ');
    const trimming = TEMPLATE.replace('message.content', 'message.content | trim');
    expect(await promptOf(prefill, trimming)).toMatch(/\nBecause 12-6=$/);
  });

  it('may be empty, or end with the messages', async () => {
    const empty = [question, { role: 'assistant', content: '' }];
    expect(await promptOf({ ...prefill, messages: empty })).toMatch(/<\|turn\|>assistant\n$/);
    expect(await promptOf({ messages, add_generation_prompt: false })).toMatch(/Because 12-6= <\|end\|>\n$/);
  });

  it('is refused where the template changes it', async () => {
    const changed = TEMPLATE.replace('message.content', "(message.content | replace('12', '13'))");
    expect(await promptOf(prefill, changed)).toMatch(/cannot continue the last of these 2 messages/);
  });

  it("comes from OpenAI's client too", async () => {
    const server = await testServer();
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
    const asked = { model: 'pupil', messages, max_tokens: 5, seed: 3, ignore_eos: true };
    const { choices } = await client.chat.completions.create({ ...asked, ...prefill } as never);
    const ids = server.served.tokenizer.encode(await promptOf(prefill), { addSpecialTokens: false });
    const [[sample] = []] = await server.model.generate([ids], {
      ...{ maxNewTokens: 5, seed: 3, ignoreEos: true, tokenizer: server.served.tokenizer },
    });
    expect(choices[0]?.message.content).toBe(sample?.text);
  });
});
