// Whether a prompt opens reasoning that an answer has to end, and that whoever grades answers to it knows.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { evaluateSolving } from '../../src/eval/solving/evaluate-solving.js';
import { solvingPrompt } from '../../src/generate/solving-prompt.js';
import { completeRunConfig } from '../../src/methods/config.js';
import { methodOf } from '../../src/methods/table.js';
import { shippedDirectory } from '../../src/models/base.js';
import { openDevice } from '../../src/runtime/device.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import type { AskedProblems } from '../../src/train/solutions/asked.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { chatModel, TEMPLATE } from './chat-model.js';

const opening = (written: string) =>
  TEMPLATE.replace("'<|turn|>assistant\\n'", `'<|turn|>assistant\\n${written}'`);
/** As DeepSeek-R1, as Qwen3 without its reasoning, and as models that do not reason. */
const OPENS = opening('<think>\\n');
const CLOSES = opening('<think>\\n\\n</think>\\n\\n');

describe('a prompt', () => {
  it.each([
    [OPENS, true],
    [CLOSES, false],
    [TEMPLATE, false],
  ])('by the chat template %j opens reasoning: %s', async (template, expected) => {
    const tokenizer = await loadTokenizer(await chatModel(template));
    expect(solvingPrompt(tokenizer).inReasoning).toBe(expected);
    expect(solvingPrompt(tokenizer, { chat: false }).inReasoning).toBe(false);
    const text = { chat: false, template: 'Q: {problem}\n<think>\n' };
    expect(solvingPrompt(tokenizer, text).inReasoning).toBe(true);
  });
});

it('asks a model whose chat template puts nothing around a message for nothing else', async () => {
  const prompt = solvingPrompt(await loadTokenizer(shippedDirectory('word-problems') as string));
  expect([prompt.template, prompt.chat]).toEqual(['{problem}', true]);
  const framed = solvingPrompt(await loadTokenizer(await chatModel(TEMPLATE)));
  expect(framed.template).toMatch(/^\{problem\}\n\nPlease reason step by step/);
});

describe('an answer inside reasoning that never ends is none', () => {
  it.each([
    [OPENS, null],
    [TEMPLATE, '7'],
  ])('of an evaluation under %j', async (template, answer) => {
    const directory = await chatModel(template);
    const device = openDevice('cpu');
    const model = await loadModel(device, directory);
    const output = join(temporaryDirectory(), 'solved');
    const solve = async () =>
      evaluateSolving(model, await loadTokenizer(directory), [{ problem: '3 + 4?', answer: '7' }], {
        output,
        maxNewTokens: 2,
      });
    await solve();
    // What random weights write holds no answer: the sample is given one, and graded anew.
    const file = join(output, 'samples.jsonl');
    const lines = readFileSync(file, 'utf8').trimEnd().split('\n');
    const sample = { ...JSON.parse(lines.at(-1) as string), text: 'The answer is 7', finish_reason: 'stop' };
    writeFileSync(file, `${[...lines.slice(0, -1), JSON.stringify(sample)].join('\n')}\n`);
    const { problems } = await solve();
    expect(problems[0]?.samples[0]).toMatchObject({ answer, right: answer !== null });
    model.dispose();
    device.dispose();
  });

  it.each([
    [OPENS, '<think>\n'],
    [TEMPLATE, ''],
  ])('of the problems that runs sample under %j: %j', async (template, opened) => {
    const base = await chatModel(template);
    const tokenizer = await loadTokenizer(base);
    const data = { source: 'word_problems', word_problems: { samples: 20, levels: [1] }, max_length: 1024 };
    const dataOf = async (method: string) => {
      const config = completeRunConfig({ method, model: { base }, data } as never);
      return (await methodOf(config).load()).data(config, tokenizer, new AbortController().signal);
    };
    const ofRounds = (await dataOf('step_kto')) as unknown as { readonly asked: AskedProblems };
    const asked = [((await dataOf('ppo')) as AskedProblems).parts, ofRounds.asked.parts];
    for (const { train } of asked) {
      const { problems } = train;
      expect(problems.length).toBeGreaterThan(0);
      expect(problems.every((problem) => problem.opened === opened)).toBe(true);
    }
  });
});
