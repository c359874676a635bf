// A sample depends on its request alone: its log-probs are those of the training forward over the same tokens, and other
// requests, order, limits, cached prefixes and interruptions change no bit of it. CPU, within one instruction set.
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadModel, type Model } from '../../src/api/model.js';
import { cacheShape } from '../../src/generate/cache/keys-values.js';
import { type GenerateOptions, Generator, type GeneratorOptions } from '../../src/generate/generator.js';
import type { Sample } from '../../src/generate/rows/sample-row.js';
import type { Device } from '../../src/runtime/device.js';
import { hiddenStates, logprobsAt } from '../../src/sequences/forward.js';
import { goldenDirectory } from '../models/golden.js';
import { isas, onGpu, openTest } from '../ops/devices.js';
import { random } from '../ops/numbers.js';

const VOCABULARY = 320;
const tokensOf = (length: number, seed: number) =>
  Array.from(random(length, seed), (x) => Math.floor((x + 1) * (VOCABULARY / 2)));

/** Two prompts that share 70 tokens, a short one, one that fills a page, and one token. */
const shared = tokensOf(70, 1);
const PROMPTS = [[...shared, 5], [...shared, 6, 7, 8], tokensOf(9, 2), tokensOf(64, 3), [4]];

const OPTIONS = {
  n: 2,
  maxNewTokens: 20,
  temperature: 0.8,
  topK: 50,
  topP: 0.95,
  seed: 3,
  promptLogprobs: true,
  topLogprobs: 2,
} as const;

/** All samples of a generator that is then disposed. */
async function generate(
  model: Model,
  prompts: readonly (readonly number[])[],
  options: GenerateOptions,
  limits: GeneratorOptions = {},
): Promise<Sample[][]> {
  const generator = new Generator(model.decoder, limits);
  const role = { adapter: model.adapter };
  const samples = await generator.generate(prompts, { role, ...options }).samples;
  generator.dispose();
  return samples;
}

const MODELS = [
  ['qwen3', 'f32', false],
  ['qwen2', 'bf16', true],
  ['mistral', 'bf16', false],
  ['opt', 'f32', false],
] as const;

describe.each(isas.filter((isa) => !onGpu(isa)))('%s', (isa) => {
  let device: Device;
  beforeAll(() => {
    device = openTest(isa);
  });
  afterAll(() => device.dispose());

  describe.each(isa === isas[0] ? MODELS : MODELS.slice(0, 2))(
    '%s %s, adapter %s',
    (name, dtype, adapted) => {
      let model: Model;
      let expected: Sample[][];
      beforeAll(async () => {
        const directory = goldenDirectory(name);
        const adapter = adapted ? join(directory, 'adapter') : undefined;
        model = await loadModel(device, directory, { dtype, adapter });
        expected = [];
        for (const [i, prompt] of PROMPTS.entries())
          expected.push(...(await generate(model, [prompt], { ...OPTIONS, promptIds: [i] })));
      });
      afterAll(() => model.dispose());

      it('log-probs are those of the training forward, at temperature 1 and at the sampling temperature', async () => {
        for (const temperature of [1, OPTIONS.temperature]) {
          const items = PROMPTS.flatMap((prompt, i) =>
            expected[i]!.map(({ tokens, logprobs, temperedLogprobs }) => ({
              ids: [...prompt, ...tokens],
              rows: tokens.map((token, t) => ({ row: prompt.length + t - 1, token })),
              found: temperature === 1 ? logprobs : temperedLogprobs,
            })),
          );
          const sequences = items.map(({ ids }, rowId) => ({
            ids,
            positions: ids.map((_, t) => t),
            branch: undefined,
            rowId,
          }));
          const rows = items.map((item) => item.rows);
          const role = { adapter: model.adapter };
          const scores = device.scope(() =>
            logprobsAt(hiddenStates(model.decoder, role, sequences), rows, { temperature }),
          );
          expect(await scores.logprobs.read()).toEqual(
            Float32Array.from(items.flatMap(({ found }) => [...found])),
          );
          for (const tensor of Object.values(scores)) tensor.dispose();
        }
      });

      it('log-probs of the prompt are those of `score`, and alternatives are the most likely tokens', async () => {
        const scores = await model.score(PROMPTS);
        expect(expected.map(([sample]) => sample?.promptLogprobs)).toEqual(
          scores.map(({ logprobs }) => logprobs),
        );
        for (const { tokens, logprobs, topLogprobs } of expected.flat()) {
          for (const [t, [first, second]] of topLogprobs!.entries()) {
            expect(first!.logprob).toBeGreaterThanOrEqual(second!.logprob);
            expect(logprobs[t]!).toBeLessThanOrEqual(first!.logprob + 1e-6);
            const same = [first!, second!].find(({ token }) => token === tokens[t]);
            if (same) expect(same.logprob).toBeCloseTo(logprobs[t]!, 5);
            else expect(logprobs[t]!).toBeLessThanOrEqual(second!.logprob + 1e-6);
          }
        }
      });

      it('samples differ between draws, seeds and rounds', async () => {
        const [[a, b]] = expected as [[Sample, Sample]];
        expect(a.tokens).not.toEqual(b.tokens);
        for (const other of [{ seed: 4 }, { iteration: 1 }]) {
          const [[c]] = (await generate(model, PROMPTS.slice(0, 1), { ...OPTIONS, ...other })) as [[Sample]];
          expect(c.tokens).not.toEqual(a.tokens);
        }
      });

      it('samples are the same together, in any order, in parts, in chunks and with few pages', async () => {
        const { pageBytes } = cacheShape(model.decoder);
        const cases = fc.record({
          order: fc.shuffledSubarray([0, 1, 2, 3, 4], { minLength: 1 }),
          maxRows: fc.integer({ min: 1, max: 8 }),
          maxTokens: fc.constantFrom(1, 2, 7, 63, 64, 65, 500),
          pages: fc.constantFrom(2, 3, 6, 100),
        });
        await fc.assert(
          fc.asyncProperty(cases, async ({ order, pages, ...limits }) => {
            const found = await generate(
              model,
              order.map((i) => PROMPTS[i]!),
              { ...OPTIONS, promptIds: order },
              { ...limits, cacheBytes: pages * pageBytes },
            );
            expect(found).toEqual(order.map((i) => expected[i]));
          }),
          { numRuns: 8 },
        );
      });

      it('samples are the same beside other requests, and with prefixes cached by earlier requests', async () => {
        const generator = new Generator(model.decoder, { maxRows: 6, maxTokens: 100 });
        const role = { adapter: model.adapter };
        const whole = generator.generate(PROMPTS, { ...OPTIONS, role });
        const others = generator.generate([tokensOf(100, 9), shared], { n: 3, maxNewTokens: 60, role });
        const base = generator.generate(PROMPTS, { ...OPTIONS, role: {} });
        expect(await whole.samples).toEqual(expected);
        await Promise.all([others.samples, base.samples]);
        expect(await generator.generate(PROMPTS, { ...OPTIONS, role }).samples).toEqual(expected);
        if (adapted) expect((await base.samples)[0]).not.toEqual(expected[0]);
        else expect(await base.samples).toEqual(expected);
        generator.dispose();
      });

      it('samples are the same when a request continues from a snapshot', async () => {
        for (const after of [0, 1, 33, 100]) {
          const generator = new Generator(model.decoder, { maxRows: 4 });
          const role = { adapter: model.adapter };
          const running = generator.generate(PROMPTS, { ...OPTIONS, role });
          let seen = 0;
          if (after > 0) for await (const _ of running) if (++seen === after) break;
          const snapshot = JSON.parse(JSON.stringify(running.snapshot()));
          generator.dispose();
          await running.samples.catch(() => {});
          const other = new Generator(model.decoder);
          expect(await other.resume(snapshot, { role }).samples).toEqual(expected);
          other.dispose();
        }
      });
    },
  );
});
