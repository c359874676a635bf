// Rows of a model whose layers keep states, which begin after a state that another row left: with the bits of a row that is computed
// alone, whatever runs beside it, when pages run out, and when the prompt comes again. CPU, within one instruction set.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { loadModel, type Model } from '../../src/api/model.js';
import { cacheShape } from '../../src/generate/cache/keys-values.js';
import { Generator, type GeneratorOptions } from '../../src/generate/generator.js';
import type { Sample } from '../../src/generate/rows/sample-row.js';
import type { Device } from '../../src/runtime/device.js';
import { goldenDirectory } from '../models/golden.js';
import { isas, onGpu, openTest } from '../ops/devices.js';
import { random } from '../ops/numbers.js';

const tokensOf = (length: number, seed: number) =>
  Array.from(random(length, seed), (x) => Math.floor((x + 1) * 48));
const shared = tokensOf(150, 1);
/** Prompts that share two pages, one that ends with a page, one that begins with the first page alone, a short one. */
const PROMPTS = [
  [...shared, ...tokensOf(20, 2)],
  [...shared, ...tokensOf(3, 3)],
  shared.slice(0, 128),
  [...shared.slice(0, 70), 5],
  tokensOf(9, 4),
];
const OPTIONS = { n: 3, maxNewTokens: 24, seed: 3, temperature: 0.9, ignoreEos: true } as const;

const MODELS = [
  ['qwen3_5-a', 'f32', false],
  ['qwen3_5-b', 'f32', true],
  ['qwen3_5-a', 'bf16', true],
  ['qwen3_5-b', 'bf16', false],
] as const;

describe.each(isas.filter((isa) => !onGpu(isa)))('%s', (isa) => {
  let device: Device;
  beforeAll(() => {
    device = openTest(isa);
  });
  afterAll(() => device.dispose());

  describe.each(isa === isas[0] ? MODELS : MODELS.slice(1, 3))(
    '%s %s, adapter %s',
    (name, dtype, adapted) => {
      let model: Model;
      let alone: Sample[][];
      const generator = (limits: GeneratorOptions = {}) => new Generator(model.decoder, limits);
      const draw = async (
        made: Generator,
        more: { skip?: (prompt: number, sample: number) => boolean } = {},
      ) => made.generate(PROMPTS, { ...OPTIONS, ...more, role: { adapter: model.adapter } }).samples;

      beforeAll(async () => {
        const directory = goldenDirectory(name);
        model = await loadModel(device, directory, {
          dtype,
          adapter: adapted ? join(directory, 'adapter') : undefined,
        });
        alone = [];
        for (const prompt of PROMPTS.keys()) {
          const own: Sample[] = [];
          for (let sample = 0; sample < OPTIONS.n; sample++) {
            const made = generator({ maxRows: 1 });
            const drawn = await draw(made, { skip: (p, s) => p !== prompt || s !== sample });
            own.push(drawn[prompt]?.[sample] as Sample);
            made.dispose();
          }
          alone.push(own);
        }
      });
      afterAll(() => model.dispose());

      it('together, in chunks, and when the prompts come again', async () => {
        for (const limits of [
          {},
          { maxTokens: 7, maxRows: 5 },
          { maxTokens: 65, maxRows: 4 },
          { maxRows: 1 },
        ]) {
          const made = generator(limits);
          expect(await draw(made)).toEqual(alone);
          expect(await draw(made)).toEqual(alone);
          made.release();
          expect(await draw(made)).toEqual(alone);
          made.dispose();
        }
      });

      it('when pages run out and rows start again', async () => {
        const { pageBytes } = cacheShape(model.decoder);
        for (const pages of [4, 7, 11]) {
          const made = generator({ cacheBytes: pages * pageBytes, maxTokens: 50, maxRows: 6 });
          expect(await draw(made)).toEqual(alone);
          expect(await draw(made)).toEqual(alone);
          made.dispose();
        }
      });

      it.runIf(adapted)('and never from a state of another adapter', async () => {
        const made = generator();
        await draw(made);
        const base = await made.generate(PROMPTS, OPTIONS).samples;
        expect(base[0]).not.toEqual(alone[0]);
        expect(await draw(made)).toEqual(alone);
        const other = generator();
        expect(await other.generate(PROMPTS, OPTIONS).samples).toEqual(base);
        other.dispose();
        made.dispose();
      });
    },
  );
});

describe('the first tokens of a prompt', () => {
  const device = openTest();
  afterAll(() => device.dispose());

  it('are computed once for its samples, and not again when it comes again', async () => {
    const model = await loadModel(device, goldenDirectory('qwen3_5-a'), { dtype: 'f32' });
    const made = new Generator(model.decoder, { maxRows: 16 });
    const forward = vi.spyOn(model.decoder, 'forwardAttending');
    const computed = async () => {
      forward.mockClear();
      await made.generate([tokensOf(200, 1)], { n: 16, maxNewTokens: 1, ignoreEos: true }).samples;
      return forward.mock.calls.reduce((sum, [{ ids }]) => sum + ids.size, 0);
    };
    expect(await computed()).toBe(200 + 15 * 8);
    expect(await computed()).toBe(16 * 8);
    made.release();
    expect(await computed()).toBe(200 + 15 * 8);
    made.dispose();
    model.dispose();
  });
});
