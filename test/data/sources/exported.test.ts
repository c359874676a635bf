// Conversations as other programs export them: spans of OpenTelemetry, traces of verifiers, and dumps of rollouts.
import { describe, expect, it } from 'vitest';
import { solutionsOf } from '../../../src/data/solution-rows.js';
import { fileWith, load } from '../data-file.js';

const read = (row: object) =>
  load(fileWith('rows.jsonl', `${JSON.stringify(row)}\n`), {}).then(({ records }) => records);

const definitions = [{ type: 'function', name: 'calc', description: 'Computes.', parameters: {} }];
const question = { role: 'user', parts: [{ type: 'text', content: 'Two and three?' }], name: null };
const call = {
  role: 'assistant',
  parts: [
    { type: 'reasoning', content: 'A sum.' },
    { type: 'tool_call', id: 'c1', name: 'calc', arguments: '{"e": "2+3"}' },
  ],
};
const result = { role: 'tool', parts: [{ type: 'tool_call_response', id: 'c1', response: { value: 5 } }] };
const answer = { role: 'assistant', parts: [{ type: 'text', content: 'Five.' }], finish_reason: 'stop' };
/** Attributes as the exporters of Python and JavaScript write them: lists as JSON texts. */
const span = (input: object[], output: object[]) => ({
  'gen_ai.operation.name': 'chat',
  'gen_ai.system_instructions': JSON.stringify([{ type: 'text', content: 'Compute.' }]),
  'gen_ai.tool.definitions': JSON.stringify(definitions),
  'gen_ai.input.messages': JSON.stringify(input),
  'gen_ai.output.messages': JSON.stringify(output),
});
const whole = {
  problem: 'Two and three?',
  turns: true,
  prompt: [
    { role: 'system', content: 'Compute.' },
    { role: 'user', content: 'Two and three?' },
  ],
  tools: [{ type: 'function', function: { name: 'calc', description: 'Computes.', parameters: {} } }],
  steps: [
    {
      text: '',
      label: null,
      message: {
        reasoning_content: 'A sum.',
        tool_calls: [{ id: 'c1', type: 'function', function: { name: 'calc', arguments: { e: '2+3' } } }],
      },
      results: [{ role: 'tool', content: '{"value":5}', tool_call_id: 'c1' }],
    },
    { text: 'Five.', label: null },
  ],
};

describe('spans of OpenTelemetry', () => {
  it('as an object of attributes: instructions, messages in and out, definitions of tools', async () => {
    const row = { name: 'chat m', attributes: span([question, call, result], [answer]) };
    expect(await read(row)).toMatchObject([whole]);
    expect(solutionsOf(row)).toMatchObject([
      { steps: ['→ calc({"e":"2+3"})', 'Five.'], turns: { tools: whole.tools } },
    ]);
  });

  it("as a batch of OTLP's JSON, of whose spans those count that no other goes on from", async () => {
    const listed = (attributes: object) => ({
      attributes: Object.entries(attributes).map(([key, value]) => ({ key, value: { stringValue: value } })),
    });
    const spans = [
      listed(span([question], [call])),
      listed(span([question, call, result], [answer])),
      listed({ 'gen_ai.operation.name': 'execute_tool' }),
    ];
    const records = await read({ resourceSpans: [{ resource: {}, scopeSpans: [{ scope: {}, spans }] }] });
    expect(records).toMatchObject([whole]);
    expect(records).toHaveLength(1);
  });

  it("with values of OTLP's JSON in place of texts", async () => {
    const value = (given: unknown): object =>
      typeof given === 'string'
        ? { stringValue: given }
        : Array.isArray(given)
          ? { arrayValue: { values: given.map(value) } }
          : given === null
            ? {}
            : typeof given === 'number'
              ? { intValue: String(given) }
              : {
                  kvlistValue: {
                    values: Object.entries(given as object).map(([key, one]) => ({ key, value: value(one) })),
                  },
                };
    const attributes = Object.entries(span([question, call, result], [answer])).map(([key, text]) => ({
      key,
      value: value(text.startsWith('[') ? JSON.parse(text) : text),
    }));
    const [record] = await read({ attributes });
    expect(record).toMatchObject({
      ...whole,
      steps: [{ ...whole.steps[0], results: [{ content: '{"value":5}' }] }, whole.steps[1]],
    });
  });

  it("whole numbers of OTLP's JSON, which it writes as texts, are numbers", async () => {
    const values = (list: readonly object[]) => ({ kvlistValue: { values: list } });
    const text = (key: string, stringValue: string) => ({ key, value: { stringValue } });
    const big = '12345678901234567890';
    const given = values([
      { key: 'n', value: { intValue: '3' } },
      { key: 'big', value: { intValue: big } },
      text('text', '3'),
    ]);
    const part = values([
      text('type', 'tool_call'),
      text('name', 'calc'),
      { key: 'arguments', value: given },
    ]);
    const message = values([
      text('role', 'assistant'),
      { key: 'parts', value: { arrayValue: { values: [part] } } },
    ]);
    const { 'gen_ai.input.messages': input } = span([question], [answer]);
    const attributes = [
      { key: 'gen_ai.input.messages', value: { stringValue: input } },
      { key: 'gen_ai.output.messages', value: { arrayValue: { values: [message] } } },
    ];
    const [record] = await read({ attributes });
    expect(record).toMatchObject({
      steps: [
        { message: { tool_calls: [{ function: { arguments: { n: 3, big: BigInt(big), text: '3' } } }] } },
      ],
    });
  });

  it.each([
    [
      [{ ...question, parts: [{ type: 'blob', modality: 'image' }] }],
      /message 2 has a part of type "blob"; expected text, reasoning/,
    ],
    [[{ role: 'user', content: 'a' }], /message 2 is .*; expected {"role": …, "parts"/],
  ])('refuses %j with one sentence', async (input, sentence) => {
    await expect(read({ attributes: span(input, [answer]) })).rejects.toThrow(sentence);
  });
});

describe('traces of verifiers', () => {
  // As verifiers 0.4.0 writes `traces.jsonl`, without the fields of tokens and times.
  const messages = [
    { role: 'system', content: 'Compute.' },
    { role: 'user', content: 'Two and three?' },
    {
      role: 'assistant',
      reasoning_content: 'A sum.',
      tool_calls: [{ id: 'c1', type: 'function', name: 'calc', arguments: '{"e": "2+3"}' }],
    },
    { role: 'tool', tool_call_id: 'c1', content: [{ type: 'text', text: '{"value":5}' }] },
    { role: 'assistant', content: 'Five.' },
    { role: 'assistant', content: 'Six.' },
  ];
  const parents = [undefined, 0, 1, 2, 3, 1];
  const trace = {
    version: 1,
    task: { type: 'Sums', data: { idx: 0, prompt: 'Two and three?', answer: '5' } },
    agent: { config: {}, name: 'agent', trainable: true },
    tools: definitions,
    nodes: messages.map((message, i) => ({
      ...(parents[i] === undefined ? {} : { parent: parents[i] }),
      message,
      sampled: message.role === 'assistant',
    })),
    rewards: { right: { score: 1, weight: 0.4 }, form: { score: 0.2, weight: 1 }, failed: null },
    info: {},
  };
  const episode = { id: 'e', env: { id: 'sums' }, task: trace.task, ok: true, traces: [trace] };
  const [called, said] = whole.steps;
  const branches = [
    { ...whole, gold_answer: '5', outcome: 1 },
    { gold_answer: '5', outcome: 1, steps: [{ text: 'Six.' }] },
  ];

  it('as episodes and alone: a conversation for each branch, weighted rewards, the answer of the task', async () => {
    expect(await read(episode)).toMatchObject(branches);
    expect(await read(trace)).toMatchObject(branches);
    expect(solutionsOf(episode)).toHaveLength(2);
  });

  it('with a weight of null as of 1, and an answer that is a number; a score that is none is refused', async () => {
    const rewards = { right: { score: 1, weight: null } };
    const data = { ...trace.task.data, answer: 5 };
    expect(await read({ ...trace, rewards, task: { ...trace.task, data } })).toMatchObject(branches);
    for (const score of [null, '1', true])
      await expect(read({ ...trace, rewards: { right: { score } } })).rejects.toThrow(
        /the score of reward 1 is .*; expected a number/,
      );
  });

  it('with rewards of turns, in the order in which the model wrote them', async () => {
    const shaped = { ...trace, info: { turn_rewards: [0.75, null, 0.25] }, rewards: {} };
    const records = await read({ ...episode, traces: [shaped] });
    expect(records).toMatchObject([
      { steps: [{ ...called, label: 1, score: 0.75 }, said] },
      { steps: [{ text: 'Six.', label: 0, score: 0.25 }] },
    ]);
    expect(records.map(({ outcome }) => outcome)).toEqual([undefined, undefined]);
  });

  it('without agents that are not trained; a message that no model wrote has no reward', async () => {
    const judge = { ...trace, agent: { ...trace.agent, trainable: false } };
    expect(await read({ ...episode, traces: [judge, trace] })).toMatchObject(branches);
    const shown = trace.nodes.map((node, i) => (i === 2 ? { ...node, sampled: false } : node));
    const [record] = await read({ ...trace, nodes: shown, info: { turn_rewards: [1, 1] } });
    expect(record?.steps.map(({ label }) => label)).toEqual([null, 1]);
  });

  it('with the tools of a branch at its root, where the file has them', async () => {
    const [root, ...others] = trace.nodes;
    const nodes = [{ ...root, tools: definitions }, ...others];
    expect(await read({ ...trace, tools: [{ ...definitions[0], name: 'other' }], nodes })).toMatchObject(
      branches,
    );
  });

  it.each([
    [{ ...episode, traces: [] }, /the episode has no traces; expected at least one/],
    [
      { ...trace, info: { turn_rewards: [1] } },
      /info.turn_rewards has 1 entries, and the model wrote 3 messages/,
    ],
    [
      { ...trace, nodes: [{ parent: 0, message: messages[1] }] },
      /node 0 of the trace is .*; expected a message, and a parent/,
    ],
  ])('refuses %#', async (row, sentence) => {
    await expect(read(row)).rejects.toThrow(sentence);
  });
});

describe('dumps of rollouts', () => {
  const prompt =
    '<|im_start|>system\nCompute.<|im_end|>\n<|im_start|>user\nTwo and three?<|im_end|>\n<|im_start|>assistant\n';
  const output =
    '<tool_call>\n{"name": "calc", "arguments": {"e": "2+3"}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>assistant\nFive.<|im_end|>\n';
  const turns = [
    {
      text: '<tool_call>\n{"name": "calc", "arguments": {"e": "2+3"}}\n</tool_call>',
      results: [{ role: 'user' }],
    },
    { text: 'Five.' },
  ];

  it('of SkyRL: prompt and output with the marks of messages, and rewards', async () => {
    const row = {
      input_prompt: prompt,
      output_response: output,
      stop_reason: 'stop',
      env_class: 'e',
      env_extras: {},
    };
    expect(await read({ ...row, score: 1 })).toMatchObject([
      { turns: true, prompt: whole.prompt, outcome: 1, steps: turns },
    ]);
    // By token, as environments that pay turns have them.
    expect(await read({ ...row, score: [0, 0, 0.25, 0] })).toMatchObject([{ outcome: 0, steps: turns }]);
  });

  it('of SkyRL whose turn was cut: the line break after it is the template’s; text between messages is refused', async () => {
    const cut = output.replace('</tool_call><|im_end|>', '</tool_call>');
    const row = { input_prompt: prompt, output_response: cut, score: 1 };
    expect(await read(row)).toMatchObject([{ steps: turns }]);
    const padded = { ...row, output_response: `${output}<|endoftext|><|endoftext|>` };
    expect(await read(padded)).toMatchObject([{ steps: turns }]);
    const lost = output.replace('<|im_end|>\n<|im_start|>user', '<|im_end|>\nIt is 5.<|im_start|>user');
    await expect(read({ ...row, output_response: lost })).rejects.toThrow(
      'the rollout has after the end of message 3 "<|im_end|>\\nIt is 5."; expected every text inside',
    );
    await expect(read({ ...row, input_prompt: `Compute.\n${prompt}` })).rejects.toThrow(
      'the rollout begins with "Compute."',
    );
  });

  it('of verl: where the marks are there; without them one sentence', async () => {
    const row = { input: prompt, output, gts: '5', score: 1, step: 3 };
    expect(await read(row)).toMatchObject([{ gold_answer: '5', outcome: 1, steps: turns }]);
    expect(await read({ ...row, gts: 5 })).toMatchObject([{ gold_answer: '5' }]);
    await expect(read({ ...row, score: [0, null] })).rejects.toThrow(/score 2 is null; expected a number/);
  });

  it('of verl as its trainer writes them, without the marks: by the lines of roles', async () => {
    // Decoded by transformers with skip_special_tokens, on the template of Qwen2.5.
    const bare = (text: string) => text.replaceAll(/<\|im_\w+\|>/g, '');
    const row = { input: bare(prompt), output: `${bare(output)}\nDone.\n`, gts: '5', score: 0, step: 3 };
    expect(await read(row)).toMatchObject([
      { outcome: 0, prompt: whole.prompt, steps: [turns[0], { text: 'Five.\n\nDone.' }] },
    ]);
    const sentence =
      /line 1: the turns of the rollout cannot be told: its text has no marks .* nor lines that are a role alone/;
    for (const bad of [
      // A turn that holds such a line itself.
      { ...row, output: 'I am\nuser\nand\nuser\nagain.' },
      { ...row, output: 'I am\nuser\nagain.' },
      { ...row, input: 'Two and three?' },
      // Phi 3 has no words for its roles.
      { ...row, input: 'Compute.\nTwo and three?\n', output: '5' },
      // A turn of Llama 3 that ends with such a word.
      { ...row, input: 'system\n\nCompute.user\n\nTwo?assistant\n\n', output: 'It is superuser\n\nTwo.' },
    ])
      await expect(read(bad)).rejects.toThrow(sentence);
  });

  // As the templates of TRL 1.16 write them, rendered by transformers 5.24; `<|` and `|>` around what its tokenizers skip.
  const told = { role: 'tool', content: '5' };
  it.each([
    [
      'Llama 3',
      '<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCompute.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nTwo and three?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n',
      '{"name": "calc", "parameters": {"e": "2+3"}}<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n5<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nFive.<|eot_id|>',
      /<\|begin_of_text\|>|<\|(start|end)_header_id\|>|<\|eot_id\|>/g,
      whole.prompt,
      [{ text: '{"name": "calc", "parameters": {"e": "2+3"}}', results: [told] }, { text: 'Five.' }],
    ],
    [
      'Gemma',
      '<bos><start_of_turn>user\nTwo and three?<end_of_turn>\n<start_of_turn>model\n',
      'Four.<end_of_turn>\n<start_of_turn>user\nSure?<end_of_turn>\n<start_of_turn>model\nFive.<end_of_turn>\n',
      /<bos>|<(start|end)_of_turn>/g,
      whole.prompt.slice(1),
      [{ text: 'Four.', results: [{ role: 'user', content: 'Sure?' }] }, { text: 'Five.' }],
    ],
    [
      'GLM',
      '[gMASK]<sop><|system|>\nCompute.<|user|>\nTwo and three?<|assistant|>\n',
      '<tool_call>calc\n</tool_call><|observation|>\n<tool_response>\n5\n</tool_response><|assistant|>\nFive.',
      undefined,
      whole.prompt,
      [
        {
          text: '<tool_call>calc\n</tool_call>',
          results: [{ role: 'tool', content: '<tool_response>\n5\n</tool_response>' }],
        },
        { text: 'Five.' },
      ],
    ],
  ])(
    'of %s: with its marks, and without where roles are words',
    async (_, input, output, skipped, prompt, steps) => {
      const row = { input, output, gts: '5', score: 1, step: 3 };
      const wanted = { prompt, steps, outcome: 1, gold_answer: '5' };
      expect(await read(row)).toMatchObject([wanted]);
      if (!skipped) return;
      const bare = (text: string) => text.replaceAll(skipped, '');
      expect(await read({ ...row, input: bare(input), output: bare(output) })).toMatchObject([wanted]);
    },
  );
});
