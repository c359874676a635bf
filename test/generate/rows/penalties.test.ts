// Penalties: what vLLM and OpenAI define, applied to logits that are computed for the whole sequence anew at every token.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadModel, type Model } from '../../../src/api/model.js';
import { Generator } from '../../../src/generate/generator.js';
import type { SamplingOptions } from '../../../src/generate/options.js';
import type { GenerationSnapshot } from '../../../src/generate/snapshot.js';
import { raggedBatch } from '../../../src/models/batch.js';
import { headLogits } from '../../../src/ops/head.js';
import { sample } from '../../../src/ops/sampling.js';
import { goldenDirectory } from '../../models/golden.js';
import { openTest } from '../../ops/devices.js';

const device = openTest();
let model: Model;
beforeAll(async () => {
  model = await loadModel(device, goldenDirectory('qwen2'), { dtype: 'f32' });
});
afterAll(() => device.dispose());

const PROMPT = [3, 17, 17, 99, 4];

interface Penalties {
  readonly presencePenalty?: number;
  readonly frequencyPenalty?: number;
  readonly repetitionPenalty?: number;
  readonly logitBias?: Readonly<Record<number, number>>;
}

/** vLLM's order: biases, then repetition, then frequency and presence. */
function penalised(logits: readonly number[], drawn: readonly number[], penalties: Penalties): number[] {
  const {
    presencePenalty = 0,
    frequencyPenalty = 0,
    repetitionPenalty: factor = 1,
    logitBias = {},
  } = penalties;
  return logits.map((logit, token) => {
    const count = drawn.filter((each) => each === token).length;
    const biased = logit + (logitBias[token] ?? 0);
    const repeated = [...PROMPT, ...drawn].includes(token)
      ? biased > 0
        ? biased / factor
        : biased * factor
      : biased;
    return repeated - frequencyPenalty * count - (count > 0 ? presencePenalty : 0);
  });
}

async function logitsAfter(ids: readonly number[]): Promise<readonly number[]> {
  const { decoder } = model;
  const batch = raggedBatch(device, [{ ids }], decoder.config);
  const logits = device.scope(() => headLogits(decoder.forward(batch), decoder.head()));
  const values = Array.from((await logits.readFloats()).slice(-decoder.config.vocabSize));
  logits.dispose();
  batch.dispose();
  return values;
}

/** Greedy, token by token. */
async function expected(penalties: Penalties, length: number): Promise<number[]> {
  const drawn: number[] = [];
  while (drawn.length < length) {
    const values = penalised(await logitsAfter([...PROMPT, ...drawn]), drawn, penalties);
    drawn.push(values.indexOf(Math.max(...values)));
  }
  return drawn;
}

const greedy: SamplingOptions = { temperature: 0, ignoreEos: true, maxNewTokens: 24 };

describe('tokens that are there already', () => {
  it.each<[string, Penalties]>([
    ['presence', { presencePenalty: 1.5 }],
    ['frequency', { frequencyPenalty: 0.7 }],
    ['a reward for what is there', { presencePenalty: -2, frequencyPenalty: -0.5, logitBias: { 301: -9 } }],
    ['repetition', { repetitionPenalty: 1.4 }],
    ['repetition below 1', { repetitionPenalty: 0.8, logitBias: { 301: -9 } }],
    [
      'all, with biases',
      {
        presencePenalty: 0.5,
        frequencyPenalty: 0.5,
        repetitionPenalty: 1.2,
        logitBias: { 17: -3, 99: Number.NEGATIVE_INFINITY, 200: 4 },
      },
    ],
  ])('%s', async (_, penalties) => {
    const { logitBias = {} } = penalties;
    const tokens = await expected(penalties, 24);
    // Beside rows without any, or with others.
    const [samples, plain] = await Promise.all([
      model.generate([PROMPT], { ...greedy, ...penalties, n: 2 }),
      model.generate([PROMPT], { ...greedy, logitBias }),
    ]);
    for (const { tokens: drawn } of samples[0] ?? []) expect(drawn).toEqual(tokens);
    expect(plain[0]?.[0]?.tokens).toEqual(await expected({ logitBias }, 24));
    expect(tokens).not.toEqual(plain[0]?.[0]?.tokens);
  });

  it('count from a snapshot on as if nobody had stopped', async () => {
    const generator = new Generator(model.decoder, { cacheBytes: 4_000_000 });
    const penalties = { frequencyPenalty: 1, repetitionPenalty: 1.3, promptTopLogprobs: 3 };
    const running = generator.generate([PROMPT], { ...greedy, ...penalties, seed: 4, temperature: 1 });
    let snapshot: GenerationSnapshot | undefined;
    let seen = 0;
    for await (const _ of running) if (++seen === 9) snapshot = running.snapshot();
    const [[whole] = []] = await running.samples;
    const saved = JSON.parse(JSON.stringify(snapshot)) as GenerationSnapshot;
    const [[resumed] = []] = await generator.resume(saved).samples;
    generator.dispose();
    expect(saved.samples[0]?.[0]?.tokens.length).toBe(9);
    expect(resumed).toEqual(whole);
    expect(resumed?.promptTopLogprobs?.map((list) => list.length)).toEqual([3, 3, 3, 3]);
  });
});

it('a token that is ruled out stays so under any factor', async () => {
  const logits = device.tensor(Float32Array.of(1, -1, 2, 0), [1, 4]);
  const { samplingLogprobs, status } = sample(logits, {
    keys: Int32Array.of(1, 2, 3, 0),
    temperature: Float32Array.of(1),
    bias: {
      offsets: Int32Array.of(0, 3),
      tokens: Int32Array.of(0, 1, 2),
      values: Float32Array.of(Number.NEGATIVE_INFINITY, 0, 0),
      repetition: {
        factors: Float32Array.of(0.5, 2, 4),
        base: Float32Array.of(Number.NEGATIVE_INFINITY, 0, 0),
      },
    },
  });
  expect(Array.from(await status.read())).toEqual([0]);
  const [p = 0] = Array.from(await samplingLogprobs.readFloats(), Math.exp);
  // Tokens 1, 2 and 3 have the logits -2, 0.5 and 0.
  const weights = [-2, 0.5, 0].map(Math.exp);
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  expect(Math.min(...weights.map((weight) => Math.abs(weight / total - p)))).toBeLessThan(1e-6);
});
