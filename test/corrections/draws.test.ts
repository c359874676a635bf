// Samples that a stopped chunk had drawn already are not drawn again.
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { StepSampler } from '../../src/corrections/sampler.js';
import type { SampleSource } from '../../src/generate/sample-source.js';
import { type Draws, openDraws } from '../../src/run/draws.js';
import type { ProgressPart } from '../../src/terminal/progress.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const tokenizer = byteTokenizer();
const N = 3;
const PREFIXES = ['a', 'b', 'c', 'd'].map((problem, id) => ({ problem, steps: [], id }));

/** Tells of each sample as it ends, and is stopped after `most` of them. */
function source(drawn: string[], most = Number.POSITIVE_INFINITY): SampleSource {
  return {
    async sample(prompts, { n = 1, promptIds = [], skip, onSample }) {
      const lists = [];
      for (const [prompt, ids] of prompts.entries()) {
        const list = [];
        for (let sample = 0; sample < n; sample++) {
          const text = `${tokenizer.decode(ids)}${sample}\n`;
          const tokens = tokenizer.encode(text);
          const ended = { tokens, logprobs: new Float32Array(tokens.length), finishReason: 'stop' as const };
          list.push(ended);
          if (skip?.(prompt, sample)) continue;
          if (drawn.length === most) return undefined;
          drawn.push(`${promptIds[prompt]}/${sample}`);
          onSample?.(prompt, sample, ended);
        }
        lists.push(list);
      }
      return lists;
    },
    publish: async () => {},
    close: async () => {},
  };
}

function sampler(of: SampleSource, draws?: Draws) {
  return new StepSampler({
    source: of,
    tokenizer,
    prompt: { tokens: (problem) => tokenizer.encode(problem), lead: '' },
    separator: '\n',
    seed: 1,
    maxLength: 100,
    ...(draws ? { draws } : {}),
  });
}

const settings = { temperature: 1, top_p: 1, max_new_tokens: 8 };

it('goes on with the samples of a stopped chunk', async () => {
  const whole = sampler(source([]));
  const expected = await whole.steps(PREFIXES, N, settings);

  const path = join(temporaryDirectory(), 'draws.jsonl');
  const first: string[] = [];
  const parts: ProgressPart[] = [];
  const stopped = sampler(source(first, 5), openDraws(path));
  stopped.report = (part) => parts.push(part);
  expect(await stopped.steps(PREFIXES, N, settings)).toBeUndefined();
  expect(parts.at(-1)).toMatchObject({ unit: 'candidates: sample', done: 5, total: 12 });

  const second: string[] = [];
  const again = sampler(source(second), openDraws(path));
  expect(await again.steps(PREFIXES, N, settings)).toEqual(expected);
  expect(again.tokens).toBe(whole.tokens);
  expect(new Set([...first, ...second]).size).toBe(12);
  expect(first.length + second.length).toBe(12);

  // Other settings, and another round, draw anew.
  const third: string[] = [];
  const other = sampler(source(third), openDraws(path));
  await other.steps(PREFIXES, N, { ...settings, temperature: 0.5 });
  await other.steps(PREFIXES, N, settings, undefined, 'tree');
  expect(third).toHaveLength(24);
});
