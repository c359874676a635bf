// A real model as a GGUF file: what transformers computes of its dequantised weights in f32.
import { existsSync, readFileSync } from 'node:fs';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadModel, type Model } from '../../src/api/model.js';
import { quantizedSummary } from '../../src/models/quantize.js';
import { type Device, openDevice } from '../../src/runtime/device.js';
import type { Tokenizer } from '../../src/tokenizer/tokenizer.js';
import { sharedPath } from '../shared.js';

const SHARED = sharedPath('models');
const FILE = `${SHARED}/smollm2-135m-instruct.Q4_1.gguf`;
const absent = existsSync(FILE) ? '' : ' (skipped: ../shared/models is absent)';

interface Scored {
  readonly text: string;
  readonly ids: readonly number[];
  readonly logprobs: readonly number[];
}
interface Chat {
  readonly messages: readonly { readonly role: string; readonly content: string }[];
  readonly prompt: readonly number[];
  readonly new: readonly number[];
}

describe.skipIf(absent !== '')(`SmolLM2-135M-Instruct from Q4_1${absent}`, () => {
  let device: Device;
  let model: Model;
  let tokenizer: Tokenizer;
  let scored: readonly Scored[];
  let chats: readonly Chat[];

  beforeAll(async () => {
    device = openDevice('cpu');
    const golden = new URL('../golden/gguf-smollm2.json', import.meta.url);
    scored = JSON.parse(readFileSync(golden, 'utf8'));
    chats = JSON.parse(readFileSync(`${SHARED}/smollm2-reference.json`, 'utf8')).greedy;
    // Its weights stay in 4 bits, those of the embedding, which is the head too, in 8.
    model = await loadModel(device, FILE, { dtype: 'f32' });
    tokenizer = await model.tokenizer();
  });
  afterAll(() => {
    model.dispose();
    device.dispose();
  });

  it('keeps every weight of two dimensions as it is stored', () => {
    expect(quantizedSummary(model.decoder.options.formats ?? new Map())).toBe(
      'quantised weights: 1 kept in q8_0, 210 kept in q4_1; products dequantise them',
    );
  });

  it('cuts texts into the same tokens', () => {
    for (const { text, ids } of scored) expect(tokenizer.encode(text)).toEqual(ids);
  });

  it('gives every token the log-probability of transformers', async () => {
    const got = await model.score(scored.map(({ ids }) => ids));
    for (const [i, { logprobs }] of scored.entries()) {
      const apart = logprobs.map((value, t) => Math.abs(value - (got[i]?.logprobs[t] ?? Number.NaN)));
      // They are 5e-5 apart at most; weights rounded to bf16 would be 0.09 apart.
      expect(Math.max(...apart)).toBeLessThan(1e-3);
    }
  });

  it('gives the same bits where its weights are dequantised as they are loaded', async () => {
    const whole = await loadModel(device, FILE, { dtype: 'f32', quantize: 'none' });
    const ids = scored.map(({ ids }) => ids);
    expect(await whole.score(ids)).toEqual(await model.score(ids));
    whole.dispose();
  });

  it('answers chats with the same tokens', async () => {
    for (const { messages, prompt, new: wanted } of chats) {
      const text = tokenizer.applyChatTemplate(messages, { addGenerationPrompt: true });
      expect(tokenizer.encode(text, { addSpecialTokens: false })).toEqual(prompt);
      const [samples] = await model.generate([prompt], { maxNewTokens: wanted.length, temperature: 0 });
      expect(samples?.[0]?.tokens).toEqual(wanted);
    }
  });
});

/** Not in the shared folder, as its licence is not ours to pass on. */
const GEMMA = process.env.STEPTRAIN_GEMMA_GGUF ?? '';
const REFERENCE = `${SHARED}/gemma-reference.json`;
const lacking =
  existsSync(GEMMA) && existsSync(REFERENCE)
    ? ''
    : ' (skipped: STEPTRAIN_GEMMA_GGUF names no file, or ../shared/models is absent)';

describe.skipIf(lacking !== '')(`Gemma 3 270M from Q4_K_M${lacking}`, () => {
  const device = openDevice('cpu');
  afterAll(() => device.dispose());

  it.each(['keep', 'none'] as const)(
    'has the tokens and log-probabilities of transformers, and frees what it computes: %s',
    async (quantize) => {
      const model = await loadModel(device, GEMMA, { dtype: 'f32', quantize });
      const tokenizer = await model.tokenizer();
      const texts: readonly Scored[] = JSON.parse(readFileSync(REFERENCE, 'utf8'));
      expect(texts.length).toBeGreaterThan(1);
      // Makes the tables of positions.
      await model.score([[2, 3]]);
      await device.synchronize();
      const held = device.stats().liveBytes;
      for (const { text, ids, logprobs } of texts) {
        expect(tokenizer.encode(text)).toEqual(ids);
        const [scored] = await model.score([[...ids]]);
        const apart = logprobs.map((value, t) => Math.abs(value - (scored?.logprobs[t] ?? Number.NaN)));
        expect(Math.max(...apart)).toBeLessThan(2e-4);
      }
      await device.synchronize();
      expect(device.stats().liveBytes).toBe(held);
      if (quantize === 'keep')
        expect(quantizedSummary(model.decoder.options.formats ?? new Map())).toBe(
          'quantised weights: 10 kept in q8_0, 27 kept in q4_k, 9 kept in q6_k; products dequantise them',
        );
      model.dispose();
    },
  );
});
