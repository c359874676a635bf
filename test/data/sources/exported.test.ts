// Conversations as other programs export them: spans of OpenTelemetry, and dumps of rollouts.
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

  it('of verl: where the marks are there; without them one sentence', async () => {
    const row = { input: prompt, output, gts: '5', score: 1, step: 3 };
    expect(await read(row)).toMatchObject([{ gold_answer: '5', outcome: 1, steps: turns }]);
    const bare = (text: string) => text.replaceAll(/<\|im_\w+\|>/g, '');
    await expect(read({ ...row, input: bare(prompt), output: bare(output) })).rejects.toThrow(
      /line 1: the text of the rollout has no marks of messages \(<\|im_start\|>\), so that its turns cannot be told/,
    );
  });
});
