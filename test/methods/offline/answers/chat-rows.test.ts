// Rows with conversations as tokens: what the model reads and what it learns to write is what its chat template writes.
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { completeRunConfig } from '../../../../src/methods/config.js';
import {
  type OfflineDataConfig,
  offlineData,
  offlinePreview,
} from '../../../../src/methods/offline/answers/data.js';
import { allAnswers } from '../../../../src/methods/offline/answers/kinds.js';
import type { StepRecord } from '../../../../src/records/record.js';
import { answerTokenizer } from '../../../../src/scoring/implicit/tokens.js';
import { loadTokenizer } from '../../../../src/tokenizer/load.js';
import type { Tokenizer } from '../../../../src/tokenizer/tokenizer.js';
import { fileWith, load } from '../../../data/data-file.js';
import { chatModel, TEMPLATE } from '../../../generate/chat-model.js';

const USER = { role: 'user', content: 'What is 2+2?' };
const ASKED = '<|turn|>user\nWhat is 2+2?<|end|>\n';
const reply = (content: string | null, more: object = {}) => ({ role: 'assistant', content, ...more });

/** As Qwen3's thinking models: the generation prompt opens the reasoning, and the last reply is written with its own. */
const THINKS =
  "{% for m in messages %}{{ '<|turn|>' + m.role + '\\n' }}" +
  "{% if m.role == 'assistant' and loop.last %}" +
  "{% set content = m.content %}{% set thoughts = m.reasoning_content or '' %}" +
  "{% if '</think>' in content %}{% set thoughts = content.split('</think>')[0].split('<think>')[1].strip() %}{% set content = content.split('</think>')[1].strip() %}{% endif %}" +
  "{{ '<think>\\n' + thoughts + '\\n</think>\\n\\n' + content }}{% else %}{{ m.content }}{% endif %}{{ '<|end|>\\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|turn|>assistant\\n<think>\\n' }}{% endif %}";

/** As DeepSeek-R1: the reasoning is opened, and left out of every reply that is written. */
const OPENS =
  "{% for m in messages %}{{ '<|turn|>' + m.role + '\\n' + m.content.split('</think>')[-1] + '<|end|>\\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|turn|>assistant\\n<think>\\n' }}{% endif %}";

const TOOLS =
  "{% if tools %}{{ '<|turn|>system\\n' + (tools | tojson) + '<|end|>\\n' }}{% endif %}" +
  "{% for m in messages %}{{ '<|turn|>' + m.role + '\\n' + m.content }}{% if m.tool_calls %}{{ '<call>' + m.tool_calls[0].function.name + '</call>' }}{% endif %}{{ '<|end|>\\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|turn|>assistant\\n' }}{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}";

async function texts(template: string, row: object, question = 'auto') {
  const tokenizer = await loadTokenizer(await chatModel(template));
  const { records } = await load(fileWith('rows.jsonl', JSON.stringify(row)));
  return records.map((record) => written(tokenizer, record, question));
}

function written(tokenizer: Tokenizer, record: StepRecord, question = 'auto') {
  const tokens = answerTokenizer(tokenizer, question);
  return [
    tokenizer.decode(tokens.prompt(record)),
    tokenizer.decode(tokens.answer(record, record.steps, { label: null }).ids),
  ];
}

describe('a template that opens the reasoning', () => {
  const content = '<think>\n2 and 2\n</think>\n\nIt is 4';
  const learned = '2 and 2\n</think>\n\nIt is 4<|end|>';
  it.each([
    ['writes it', THINKS],
    ['leaves it out', OPENS],
  ])('and %s: the model learns one, not a second', async (_, template) => {
    const expected = [[`${ASKED}<|turn|>assistant\n<think>\n`, learned]];
    expect(await texts(template, { messages: [USER, reply(content)] })).toEqual(expected);
    expect(await texts(template, { prompt: [USER], completion: [reply(content)] })).toEqual(expected);
    // A problem that is asked in the words of the configuration.
    const asked = { problem: 'What is 2+2?', steps: [{ text: content, label: 1 }] };
    const [[prompt, answer]] = (await texts(template, asked)) as [[string, string]];
    expect(prompt.endsWith('<|turn|>assistant\n<think>\n')).toBe(true);
    expect(answer).toBe(learned);
  });

  it.each(['<think>2 and 2</think>It is 4', '<think>\n\n2 and 2\n</think> It is 4\n'])(
    'and writes its white space otherwise than %j: the model learns the template’s, as by transformers',
    async (text) => {
      expect((await texts(THINKS, { messages: [USER, reply(text)] }))[0]![1]).toBe(learned);
      // Where the prompt opens nothing, the template writes the opening too.
      const open = THINKS.replace("assistant\\n<think>\\n' }}{% endif %}", "assistant\\n' }}{% endif %}");
      expect((await texts(open, { messages: [USER, reply(text)] }))[0]![1]).toBe(`<think>\n${learned}`);
      // A reply of which the template leaves out a part is learned as it is.
      const before = `well ${text.trim()}`;
      expect((await texts(open, { messages: [USER, reply(before)] }))[0]![1]).toBe(`${before}<|end|>`);
    },
  );

  it('writes reasoning that has a key of its own, and a reply without any', async () => {
    const message = reply('It is 4', { reasoning_content: '2 and 2' });
    expect(await texts(THINKS, { messages: [USER, message] })).toEqual([
      [`${ASKED}<|turn|>assistant\n<think>\n`, learned],
    ]);
    expect((await texts(THINKS, { messages: [USER, reply('It is 4')] }))[0]![1]).toBe(
      '\n</think>\n\nIt is 4<|end|>',
    );
    const pair = { prompt: [USER], chosen: [message], rejected: [reply('5')] };
    const { records } = await load(fileWith('rows.jsonl', JSON.stringify(pair)));
    expect(records[0]!.steps[0]!.message).toEqual({ reasoning_content: '2 and 2' });
  });

  it('is told of where replies never end it, in every layout of their rows', async () => {
    const messages = [
      { messages: [USER, reply('It is 4')] },
      { messages: [USER, reply(content)] },
      { prompt: [USER], completion: [reply('4')] },
      { prompt: 'What is 2+2?<think>\n', completion: '4' },
      { prompt: 'What is 2+2?', completion: '4' },
      { prompt: 'What is 2+2?<think>\n', completion: content },
    ];
    const tokenizer = await loadTokenizer(await chatModel(OPENS));
    const rows = fileWith('rows.jsonl', messages.map((row) => JSON.stringify(row)).join('\n'));
    const { records } = await load(rows);
    const tokens = answerTokenizer(tokenizer, 'auto');
    const unclosed = records.map((record) => tokens.answer(record, record.steps, { label: 1 }).unclosed);
    const end = '</think>';
    expect(unclosed).toEqual([end, undefined, end, end, undefined, undefined]);
    // A problem that is asked in the words of the configuration.
    const steps = [{ text: 'It is 4', label: 1, kind: 'normal' }] as const;
    expect(tokens.answer({}, steps, { label: 1 }).unclosed).toBe(end);
    // The beginning of a solution need not end anything, and this template ends it by itself.
    const [plain] = records as [StepRecord];
    expect(tokens.answer(plain, plain.steps, { label: 1, ends: false }).unclosed).toBeUndefined();
    const ending = answerTokenizer(await loadTokenizer(await chatModel(THINKS)), 'auto');
    expect(ending.answer(plain, plain.steps, { label: 1 }).unclosed).toBeUndefined();

    const said = vi.spyOn(console, 'error').mockImplementation(() => {});
    onTestFinished(() => said.mockRestore());
    const data = completeRunConfig({
      method: 'solution_sft',
      data: { train: rows, split: [1, 0, 0] },
    }) as OfflineDataConfig;
    await offlineData(data, tokenizer, allAnswers);
    expect(said.mock.calls.flat()).toEqual([
      expect.stringMatching(
        /^train: 3 of 6 answers never write <\/think>, the end of the reasoning that their prompt opens: /,
      ),
      // Texts are learned word for word.
      expect.stringMatching(/^train: 1 of 6 answers begin with <think>, with which their prompt ends: /),
    ]);
    const preview = offlinePreview(data, tokenizer, allAnswers);
    expect(records.flatMap((record) => [...preview(record)].map(({ title }) => title))).toEqual([
      'an answer, never writes </think>',
      'an answer',
      'an answer, never writes </think>',
      'an answer, never writes </think>',
      'an answer',
      'an answer, writes a second <think>',
    ]);
  });

  it('keeps steps apart', async () => {
    const tokenizer = await loadTokenizer(await chatModel(THINKS));
    const steps = ['<think>', 'a = 2', '</think>', 'It is 4'].map((text) => ({
      text,
      label: 1 as const,
      kind: 'normal' as const,
    }));
    const answer = answerTokenizer(tokenizer, 'auto').answer({ prompt: [USER] }, steps, { label: 1 });
    expect(
      answer.steps.map(({ begin, end }) => tokenizer.decode(answer.ids.slice(begin, end))).join(''),
    ).toBe(tokenizer.decode(answer.ids));
  });
});

describe('a template that closes the reasoning before the reply', () => {
  const options = { chat_template_kwargs: { enable_thinking: false } };
  const opening = '<|turn|>assistant\n<think>\n\n</think>\n\n';
  /** Its last replies are written with the closed reasoning, as by Qwen3.5's. */
  const written = TOOLS.replace(
    "'\\n' + m.content }}",
    "'\\n' }}{% if m.role == 'assistant' %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{{ m.content }}",
  );
  const closed = written.replace('enable_thinking is defined and not enable_thinking', 'true');

  it('writes a reply that does not reason', async () => {
    for (const template of [TOOLS, written])
      for (const content of ['It is 4', '<think>\n\n</think>\n\nIt is 4', '</think>It is 4'])
        expect(await texts(template, { messages: [USER, reply(content)], ...options })).toEqual([
          [`${ASKED}${opening}`, 'It is 4<|end|>'],
        ]);
  });

  it.each(['<think>\n2 and 2\n</think>\n\nIt is 4', '2 and 2\n</think>\n\nIt is 4'])(
    'refuses one that does: %j',
    async (content) => {
      const refused = /closed the reasoning before the reply \(<think><\/think>\), and the reply ends one/;
      for (const template of [TOOLS, written]) {
        const row = { prompt: [USER], completion: [reply(content)], ...options };
        await expect(texts(template, row)).rejects.toThrow(refused);
      }
      // A problem that is asked in the words of the configuration.
      const asked = { problem: 'What is 2+2?', steps: [{ text: content, label: 1 }] };
      await expect(texts(closed, asked)).rejects.toThrow(refused);
    },
  );
});

it('a reply is refused whose reasoning a template would write as a second, after an empty one of its own', async () => {
  // As Qwen3.8's, which reads reasoning_content alone, and whose prompt opens the reasoning.
  const own =
    "{% for m in messages %}{{ '<|turn|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}" +
    "{{ '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' }}{% endif %}{{ m.content + '<|end|>\\n' }}{% endfor %}" +
    "{% if add_generation_prompt %}{{ '<|turn|>assistant\\n<think>\\n' }}{% endif %}";
  await expect(texts(own, { messages: [USER, reply('<think>2 and 2</think>4')] })).rejects.toThrow(
    /closed the reasoning before the reply .* give it as reasoning_content/,
  );
  const row = { messages: [USER, reply('4', { reasoning_content: '2 and 2' })] };
  expect(await texts(own, row)).toEqual([
    [`${ASKED}<|turn|>assistant\n<think>\n`, '2 and 2\n</think>\n\n4<|end|>'],
  ]);
});

describe('what a template does not read', () => {
  it.each([
    [
      TEMPLATE,
      { messages: [USER, reply('4', { reasoning_content: '2 and 2' })] },
      /does not read reasoning_content/,
    ],
    [
      '{% for m in messages %}{{ m.reasoning }}{{ m.content }}{% endfor %}',
      { messages: [USER, reply('4', { thinking: 'x' })] },
      /does not read thinking.*it reads reasoning: rename it/,
    ],
    [TEMPLATE, { messages: [USER, reply('4')], tools: [{ type: 'function' }] }, /does not read tools/],
    [
      TEMPLATE,
      { messages: [USER, reply('4')], chat_template_kwargs: { enable_thinking: false } },
      /does not read enable_thinking/,
    ],
    [OPENS, { prompt: [USER], chosen: [reply('4')], rejected: [reply('5', { thinking: 'x' })] }, undefined],
  ])('is refused with its place', async (template, row, message) => {
    if (message) {
      await expect(texts(template, row)).rejects.toThrow(message);
      await expect(texts(template, row)).rejects.toThrow(/rows.jsonl, line 1: /);
    } else {
      const { records } = await load(fileWith('rows.jsonl', JSON.stringify(row)));
      const tokens = answerTokenizer(await loadTokenizer(await chatModel(template)), 'auto');
      expect(() => tokens.answer(records[0]!, records[0]!.rejected!, { label: 0 })).toThrow(/thinking/);
    }
  });

  it.each([
    [
      'system',
      { messages: [{ role: 'system', content: 'Be short.' }, USER, reply('4')] },
      /role "system".*use user or assistant/,
    ],
    [
      'tool',
      { messages: [USER, reply('?'), { role: 'tool', content: '4' }, reply('4')] },
      /role "tool".*use user or assistant/,
    ],
  ])('of the role %s is refused', async (role, row, message) => {
    const known = "['user', 'assistant']";
    const without = TEMPLATE.replace('in messages', `in messages if message.role in ${known}`);
    await expect(texts(without, row)).rejects.toThrow(message);
    const [[prompt]] = (await texts(TEMPLATE, row)).slice(-1) as [[string]];
    expect(prompt).toContain(`<|turn|>${role}\n`);
  });

  it('of a developer is the system’s', async () => {
    const onlySystem = TEMPLATE.replace(
      '{% for message in messages %}',
      "{% for message in messages if message.role in ['system', 'user', 'assistant'] %}",
    );
    const [[prompt]] = (await texts(onlySystem, {
      messages: [{ role: 'developer', content: 'Be short.' }, USER, reply('4')],
    })) as [[string]];
    expect(prompt.startsWith('<|turn|>system\nBe short.<|end|>\n')).toBe(true);
  });
});

it('refuses several calls of which the template writes one', async () => {
  const call = (name: string) => ({ type: 'function', function: { name, arguments: {} } });
  const calls = (...names: string[]) => reply('', { tool_calls: names.map(call) });
  const several = TOOLS.replace(
    "'<call>' + m.tool_calls[0].function.name + '</call>' }}",
    "'<call>' }}{% for c in m.tool_calls %}{{ c.function.name + ' ' }}{% endfor %}{{ '</call>' }}",
  );
  const result = { role: 'tool', content: 'a long result of it' };
  for (const messages of [
    [USER, calls('add', 'take')],
    [USER, calls('add', 'take'), result, result, reply('It is 4')],
  ]) {
    await expect(texts(TOOLS, { messages })).rejects.toThrow(
      /leaves out tool calls of message 2, which has several; give each a message of its own/,
    );
    expect((await texts(several, { messages }))[0]![1]).toBe('<call>add take </call><|end|>');
  }
  expect((await texts(TOOLS, { messages: [USER, calls('add')] }))[0]![1]).toBe('<call>add</call><|end|>');
});

describe('what a template reads', () => {
  it('are tools, calls without a text, and variables', async () => {
    const call = { type: 'function', function: { name: 'add', arguments: {} } };
    const messages = [USER, reply(null, { tool_calls: [call] })];
    for (const tools of [[{ name: 'add' }], '[{"name": "add"}]']) {
      const [[prompt, answer]] = (await texts(TOOLS, { messages, tools })) as [[string, string]];
      expect(prompt).toContain('"add"');
      expect(answer).toBe('<call>add</call><|end|>');
    }
    const [[off]] = (await texts(TOOLS, {
      messages: [USER, reply('4')],
      chat_template_kwargs: { enable_thinking: false },
    })) as [[string]];
    expect(off.endsWith('<think>\n\n</think>\n\n')).toBe(true);
    expect(
      (await texts(TOOLS, { messages: [USER, reply('4')], tools: [], chat_template_kwargs: {} }))[0],
    ).toEqual([`${ASKED}<|turn|>assistant\n`, '4<|end|>']);
  });

  it('is the text of parts, each in lines of its own', async () => {
    const parts = ['What is', '2+2?'].map((text) => ({ type: 'text', text }));
    const row = { messages: [{ role: 'user', content: parts }, reply('4')] };
    const asked = '<|turn|>user\nWhat is\n2+2?<|end|>\n<|turn|>assistant\n';
    expect(await texts(TEMPLATE, row)).toEqual([[asked, '4<|end|>']]);
    // What is learned is what the template writes of a reply in parts.
    const answer = { role: 'assistant', content: ['4', 'indeed'].map((text) => ({ type: 'text', text })) };
    expect(await texts(TEMPLATE, { messages: [USER, answer] })).toEqual([
      [`${ASKED}<|turn|>assistant\n`, '4\nindeed<|end|>'],
    ]);
    const reads = TEMPLATE.replace(
      'message.content',
      "(message.content if message.content is string else message.content | map(attribute='text') | join)",
    );
    expect(reads).not.toBe(TEMPLATE);
    expect(await texts(reads, { messages: [{ role: 'user', content: parts }, answer] })).toEqual([
      ['<|turn|>user\nWhat is2+2?<|end|>\n<|turn|>assistant\n', '4indeed<|end|>'],
    ]);
    const image = { messages: [{ role: 'user', content: [{ type: 'image_url' }] }, reply('4')] };
    await expect(texts(TEMPLATE, image)).rejects.toThrow(
      /part 1 of the content of message 1 .* is of type "image_url"/,
    );
  });
});

describe('a conversation with several replies', () => {
  const messages = [USER, reply('4'), { role: 'user', content: 'And 3+3?' }, reply('6')];
  const learned = async (row: object, turns?: 'all' | 'last') => {
    const tokenizer = await loadTokenizer(await chatModel());
    const { records, report } = await load(
      fileWith('rows.jsonl', JSON.stringify(row)),
      turns ? { turns } : {},
    );
    return { answers: records.map((record) => written(tokenizer, record)), records, report };
  };

  it('is learned reply by reply, each after what comes before it, as one problem', async () => {
    const { answers, records, report } = await learned({ messages });
    expect(answers.map(([, answer]) => answer)).toEqual(['4<|end|>', '6<|end|>']);
    expect(answers[0]![0]).toBe(`${ASKED}<|turn|>assistant\n`);
    expect(answers[1]![0]).toContain('4<|end|>\n<|turn|>user\nAnd 3+3?');
    expect(new Set(records.map(({ problem }) => problem))).toEqual(new Set(['And 3+3?']));
    expect(report.conversations).toEqual({ count: 1, replies: 2, learned: 2 });
    const history = { instruction: 'And 3+3?', output: '6', history: [['What is 2+2?', '4']] };
    expect((await learned(history)).answers).toEqual(answers);
  });

  it('has replies of weight 0 as context, as OpenAI’s data for fine-tuning', async () => {
    const weighed = (...weights: unknown[]) => ({
      messages: messages.map((message, i) =>
        i % 2 === 0 ? message : { ...message, weight: weights[i >> 1] },
      ),
    });
    const answersOf = async (...weights: unknown[]) =>
      (await learned(weighed(...weights))).answers.map(([, answer]) => answer);
    expect(await answersOf(0, 1)).toEqual(['6<|end|>']);
    expect(await answersOf(1, 0)).toEqual(['4<|end|>']);
    expect(await answersOf(null, 1)).toEqual(['4<|end|>', '6<|end|>']);
    expect((await learned(weighed(0, 1))).answers[0]![0]).toContain('4<|end|>');
    for (const other of [
      { loss_mask: 0 },
      { loss: false },
      { train: false },
      { trainable: 0 },
      { training: false },
    ]) {
      const { messages } = weighed(1, 1);
      const first = messages.map((message, i) => (i === 1 ? { ...message, ...other } : message));
      expect((await learned({ messages: first })).answers).toEqual((await learned(weighed(0, 1))).answers);
    }
    await expect(answersOf(0, 0)).rejects.toThrow(/every reply that would be learned has weight 0/);
    await expect(answersOf(2, 1)).rejects.toThrow(
      /weight of message 2 is the number 2; expected true, false/,
    );
  });

  it('is learned by its last reply where that is asked for, or has a label', async () => {
    for (const [row, turns] of [
      [{ messages }, 'last'],
      [{ messages, label: true }, 'all'],
      [{ conversations: messages, kto_tag: true }, 'all'],
    ] as const) {
      const { answers, report } = await learned(row, turns);
      expect(answers.map(([, answer]) => answer)).toEqual(['6<|end|>']);
      expect(report.conversations).toEqual({ count: 1, replies: 2, learned: 1 });
    }
  });
});

it('what a row of a chat says is the same as a record of this package', async () => {
  const row = {
    messages: [USER, reply('4', { reasoning_content: '2 and 2' })],
    tools: [{ name: 'add' }],
    chat_template_kwargs: { enable_thinking: false },
  };
  const { records } = await load(fileWith('rows.jsonl', JSON.stringify(row)));
  const again = await load(fileWith('rows.jsonl', JSON.stringify(records[0])));
  const { provenance: _, ...before } = records[0]!;
  const { provenance: _also, ...after } = again.records[0]!;
  expect(after).toEqual(before);
});
