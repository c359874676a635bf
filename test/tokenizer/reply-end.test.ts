// Where a reply ends: the token that training puts behind replies ends samples, and stands in what is saved.
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { openChosenModel } from '../../src/cli/chosen/chosen-model.js';
import { correctionTokenizer } from '../../src/methods/s3c/sequences.js';
import { loadDecoder } from '../../src/models/load.js';
import { mergeAdapter } from '../../src/models/merge.js';
import { saveGguf } from '../../src/models/save-gguf.js';
import type { StepRecord } from '../../src/records/record.js';
import { answerTokenizer } from '../../src/scoring/implicit/tokens.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { endTokens, replyEnd, replyEndWarning } from '../../src/tokenizer/reply-end.js';
import { saveModel } from '../../src/train/roles/save-model.js';
import { localSolutions } from '../../src/train/solutions/local-solutions.js';
import { chatModel, END_OF_TURN, TEMPLATE } from '../generate/chat-model.js';
import { writeTokenizer } from '../models/gguf-tokenizer.js';
import { goldenDirectory } from '../models/golden.js';
import { openTest } from '../ops/devices.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const device = openTest();
afterAll(() => device.dispose());

const EOS = 257;
/** As Qwen2.5's base models: the template ends turns with one token, and the end of text is another. */
const base = (template = TEMPLATE) => chatModel(template, '<|eos|>');

describe('the end of a reply', () => {
  const turn = (end: string) =>
    `{% for m in messages %}{{ '<|turn|>' + m.role + '\\n' + m.content }}${end}{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}`;
  it.each([
    ['what the template writes behind it', turn('<|end|>\n'), { id: END_OF_TURN }],
    ['the first of two tokens', turn('<|end|>\n{{ eos_token }}'), { id: END_OF_TURN }],
    ['a token after text', turn('\n</answer>\n<|end|>'), { id: END_OF_TURN }],
    ['the end of text by its name', turn('{{ eos_token }}'), { id: EOS }],
    ['the end of text where nothing is written', turn('\n'), { id: EOS }],
    ['the end of text where the template refuses', "{{ raise_exception('no') }}", { id: EOS }],
    ['the end of text after what is no token', turn('<|im_end|>\n'), { id: EOS, text: '<|im_end|>' }],
  ])('is %s', async (_, template, end) => {
    const tokenizer = await loadTokenizer(await base(template));
    expect(replyEnd(tokenizer)).toEqual(end);
    const said = replyEndWarning(tokenizer);
    if (!('text' in end)) return expect(said).toEqual([]);
    expect(said).toEqual([
      'the chat template ends replies with "<|im_end|>", which is no token of the tokenizer: it is learned as text, and the end-of-text token after it',
    ]);
  });

  it('is a token that the file does not call special', async () => {
    const directory = await base();
    const path = join(directory, 'tokenizer.json');
    const json = JSON.parse(readFileSync(path, 'utf8')) as {
      added_tokens: { id: number; special: boolean }[];
    };
    for (const token of json.added_tokens) if (token.id === END_OF_TURN) token.special = false;
    writeFileSync(path, JSON.stringify(json));
    const template = TEMPLATE.replace('<|end|>\\n', '<|end|>\\n<|eos|>');
    writeFileSync(join(directory, 'chat_template.jinja'), template);
    expect(replyEnd(await loadTokenizer(directory))).toEqual({ id: END_OF_TURN });
  });

  it('is named where no token ends anything', async () => {
    const tokenizer = await loadTokenizer(await base(turn('\n')));
    const without = Object.assign(Object.create(tokenizer), { eosId: undefined });
    expect(replyEndWarning(without)).toEqual([
      'no token ends what is learned: samples go on up to their most tokens; name an eos_token in tokenizer_config.json',
    ]);
  });
});

describe('training', () => {
  const steps = [{ text: '4', label: null, kind: 'normal' as const }];
  const messages = [{ role: 'user', content: '2+2?' }];
  it.each([
    ['a problem asked in a chat', { problem: '2+2?' }, 'auto', END_OF_TURN],
    ['a conversation', { problem: '2+2?', prompt: messages }, 'auto', END_OF_TURN],
    ['a problem asked as text', { problem: '2+2?' }, 'Q: {problem}\nA:', EOS],
    ['a prompt word for word', { problem: '', prompt: 'Q: 2+2?' }, 'auto', EOS],
  ] as const)('ends the answer to %s with the token that ends samples', async (_, record, template, end) => {
    const tokenizer = await loadTokenizer(await base());
    const { ids } = answerTokenizer(tokenizer, template).answer(record as Pick<StepRecord, 'prompt'>, steps, {
      label: null,
    });
    expect(ids.at(-1)).toBe(end);
    expect(ids.filter((id) => id === END_OF_TURN || id === EOS)).toHaveLength(1);
    expect(endTokens({ eosTokenIds: [EOS], vocabSize: 320 }, tokenizer)).toContain(end);
  });

  it('ends what a template ends in no token with the end of text', async () => {
    const tokenizer = await loadTokenizer(await base(TEMPLATE.replaceAll('<|end|>', '[END]')));
    const record = { problem: '', prompt: messages };
    const { ids } = answerTokenizer(tokenizer, 'auto').answer(record, steps, { label: null });
    expect(tokenizer.decode(ids)).toBe('4[END]<|eos|>');
  });

  it('ends solutions with corrections so', async () => {
    const tokenizer = await loadTokenizer(await base());
    const format = { reflection: 'Wait: {text}', improvement: 'So: {text}' };
    const last = (chat: boolean) =>
      correctionTokenizer(tokenizer, { format: { ...format, chat } })({ problem: '2+2?', steps }).ids.at(-1);
    expect([last(true), last(false)]).toEqual([END_OF_TURN, EOS]);
  });
});

describe('sampling', () => {
  // Every first token is the one that ends a turn; config.json and generation_config.json name others.
  const certain = { logitBias: { [END_OF_TURN]: 1e4 }, maxNewTokens: 4, temperature: 0 };
  const stopped = [{ tokens: [END_OF_TURN], finishReason: 'stop', stop: END_OF_TURN }];

  it.each([undefined, { eos_token_id: [EOS] }])(
    'ends there with a generation_config.json of %j',
    async (lists) => {
      const directory = await base();
      if (lists) writeFileSync(join(directory, 'generation_config.json'), JSON.stringify(lists));
      const model = await loadModel(device, directory);
      const [samples] = await model.generate([[65, 66]], certain);
      expect(samples).toMatchObject(stopped);
      const events = [];
      for await (const event of model.stream([[65, 66]], certain)) events.push(event.finishReason);
      expect(events).toEqual(['stop']);
      expect(model.eosTokenIds).not.toContain(END_OF_TURN);
      expect(model.endTokens(await model.tokenizer())).toContain(END_OF_TURN);
      model.dispose();
    },
  );

  it('ends there in a GGUF file whose metadata name the end of text alone', async () => {
    const directory = join(temporaryDirectory(), 'model');
    cpSync(goldenDirectory('qwen2'), directory, { recursive: true });
    writeTokenizer(directory, 'qwen2');
    const config = join(directory, 'tokenizer_config.json');
    const chat = "{% for m in messages %}{{ m.content + '<|end|>' }}{% endfor %}";
    writeFileSync(config, JSON.stringify({ chat_template: chat }));
    const path = join(temporaryDirectory(), 'model.gguf');
    await saveGguf(directory, path, 'F32');
    const model = await loadModel(device, path, { dtype: 'f32' });
    expect(model.eosTokenIds).toContain(300);
    const [samples] = await model.generate([[65, 66]], { ...certain, logitBias: { 300: 1e4 } });
    expect(samples).toMatchObject([{ tokens: [300], finishReason: 'stop' }]);
    model.dispose();
  });

  it('ends there by the commands', async () => {
    const {
      device: own,
      model,
      eosTokenIds,
    } = await openChosenModel({
      'run-or-model': await base(),
      device: 'cpu',
    });
    expect(eosTokenIds).toEqual([2, EOS, END_OF_TURN]);
    model.dispose();
    own.dispose();
  });

  it('ends there in rollouts', async () => {
    const directory = await base();
    const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
    const sampling = {
      num_generations: 40,
      max_new_tokens: 40,
      temperature: 1,
      top_p: 1,
      top_k: 0,
      min_p: 0,
    };
    const sampler = localSolutions({
      decoder,
      role: {},
      tokenizer: await loadTokenizer(directory),
      sampling: { ...sampling, stop: [], max_rows: 40 },
      seed: 1,
    });
    const [samples = []] = (await sampler.sample([{ id: 0, ids: [65] }], { iteration: 0 })) ?? [];
    const ends = samples
      .filter(({ finishReason }) => finishReason === 'stop')
      .map(({ tokens }) => tokens.at(-1));
    expect(new Set(ends)).toContain(END_OF_TURN);
    for (const { tokens } of samples) expect(tokens.slice(0, -1)).not.toContain(END_OF_TURN);
    decoder.dispose();
  });
});

describe('what is saved', () => {
  const listed = (directory: string) =>
    (JSON.parse(readFileSync(join(directory, 'generation_config.json'), 'utf8')) as { eos_token_id: unknown })
      .eos_token_id;

  it('lists it after a merge, beside those of the base', async () => {
    const directory = await base();
    writeFileSync(join(directory, 'generation_config.json'), '{"eos_token_id": 7, "top_k": 3}');
    const output = join(temporaryDirectory(), 'merged');
    await mergeAdapter(device, directory, join(goldenDirectory('llama3'), 'adapter'), output);
    expect(listed(output)).toEqual([2, 7, END_OF_TURN]);
    expect(readFileSync(join(output, 'generation_config.json'), 'utf8')).toContain('"top_k": 3');
  });

  it('lists it in a model that was trained whole', async () => {
    const directory = await base();
    const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
    const output = join(temporaryDirectory(), 'model');
    await saveModel(decoder, await loadTokenizer(directory), output);
    decoder.dispose();
    expect(listed(output)).toEqual([2, END_OF_TURN]);
  });
});
