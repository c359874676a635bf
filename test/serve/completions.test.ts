// /v1/completions and /v1/chat/completions, asked by OpenAI's own client: the samples are those of the model in process.
import OpenAI from 'openai';
import { describe, expect, it } from 'vitest';
import { promptTokens } from '../../src/generate/prompts.js';
import type { Sample } from '../../src/generate/rows/sample-row.js';
import { serve } from '../../src/serve/server.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { metric, post, type TestServer, testServer, until } from './test-server.js';

const client = ({ url }: TestServer) => new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 });

const messages = [{ role: 'user' as const, content: 'Why?' }];

/** Samples of the model in this process. */
async function drawn(
  { model, served }: TestServer,
  prompt: Parameters<typeof promptTokens>[1],
  options: Parameters<typeof model.generate>[1],
): Promise<Sample[]> {
  const { tokenizer } = served;
  const [samples] = await model.generate([promptTokens(tokenizer, prompt)], { tokenizer, ...options });
  return samples as Sample[];
}

it('keeps idle connections longer than clients do, so that none ends while a request comes', async () => {
  const { url } = await testServer();
  const response = await fetch(`${url}/v1/models`);
  await response.json();
  expect(response.headers.get('keep-alive')).toBe('timeout=20');
});

describe('/v1/completions', () => {
  it('returns the samples of the model, with tokens and log-probabilities', async () => {
    const server = await testServer();
    const options = { n: 2, seed: 7, temperature: 0.9, top_p: 0.95 } as const;
    const answer = await client(server).completions.create({
      model: 'pupil',
      prompt: 'one',
      max_tokens: 6,
      logprobs: 2,
      ...options,
      ...{ top_k: 40, min_p: 0.001, return_token_ids: true, return_tokens_as_token_ids: true },
    });
    const samples = await drawn(server, 'one', {
      ...{ n: 2, seed: 7, temperature: 0.9, topP: 0.95, topK: 40, minP: 0.001 },
      maxNewTokens: 6,
      topLogprobs: 2,
    });
    expect(answer.choices.map(({ text, finish_reason }) => [text, finish_reason])).toEqual(
      samples.map(({ text, finishReason }) => [text, finishReason]),
    );
    for (const [i, choice] of answer.choices.entries()) {
      const { tokens, logprobs, topLogprobs } = samples[i] as Sample;
      expect(choice).toMatchObject({
        index: i,
        token_ids: tokens,
        prompt_token_ids: promptTokens(server.served.tokenizer, 'one'),
      });
      expect(choice.logprobs?.tokens).toEqual(tokens.map((token) => `token_id:${token}`));
      expect(choice.logprobs?.token_logprobs).toEqual([...logprobs]);
      const [first] = topLogprobs as NonNullable<typeof topLogprobs>;
      expect(choice.logprobs?.top_logprobs?.[0]).toEqual(
        Object.fromEntries(
          [...(first ?? []), { token: tokens[0], logprob: logprobs[0] }].map((each) => [
            `token_id:${each.token}`,
            each.logprob,
          ]),
        ),
      );
    }
    const total = samples.reduce((sum, { tokens }) => sum + tokens.length, 0);
    expect(answer.usage).toEqual({ prompt_tokens: 3, completion_tokens: total, total_tokens: total + 3 });
  });

  it('streams the same choices, and the token counts at the end', async () => {
    const server = await testServer();
    const asked = { model: 'pupil', prompt: ['one', 'two'], n: 2, seed: 3, max_tokens: 9, logprobs: 1 };
    const whole = await client(server).completions.create(asked);
    const stream = await client(server).completions.create({
      ...asked,
      stream: true,
      stream_options: { include_usage: true },
    });
    const texts = ['', '', '', ''];
    const logprobs: number[][] = [[], [], [], []];
    const offsets: number[][] = [[], [], [], []];
    const reasons: unknown[] = [];
    let usage: unknown;
    for await (const chunk of stream) {
      for (const choice of chunk.choices) {
        texts[choice.index] += choice.text;
        logprobs[choice.index]?.push(...(choice.logprobs?.token_logprobs ?? []));
        offsets[choice.index]?.push(...(choice.logprobs?.text_offset ?? []));
        if (choice.finish_reason) reasons[choice.index] = choice.finish_reason;
      }
      usage = chunk.usage ?? usage;
    }
    expect(texts).toEqual(whole.choices.map(({ text }) => text));
    expect(logprobs).toEqual(whole.choices.map((choice) => choice.logprobs?.token_logprobs));
    expect(offsets).toEqual(whole.choices.map((choice) => choice.logprobs?.text_offset));
    expect(reasons).toEqual(whole.choices.map(({ finish_reason }) => finish_reason));
    expect(usage).toEqual(whole.usage);
  });

  it('streams the token counts of each choice so far, if requested', async () => {
    const server = await testServer();
    const asked = { model: 'pupil', prompt: ['one', 'four'], n: 2, seed: 3, max_tokens: 9, ignore_eos: true };
    for (const include of [true, false]) {
      const stream = (await client(server).completions.create({
        ...{ ...asked, stream: true },
        stream_options: { include_usage: include, continuous_usage_stats: true },
      } as never)) as unknown as AsyncIterable<OpenAI.Completion>;
      const counts: unknown[][] = [[], [], [], []];
      const totals: unknown[] = [];
      for await (const { choices, usage } of stream) {
        if (choices[0]) counts[choices[0].index]?.push(usage);
        else totals.push(usage);
      }
      const of = (prompt: number, tokens: number) => ({
        prompt_tokens: prompt,
        completion_tokens: tokens,
        total_tokens: prompt + tokens,
      });
      expect(totals).toEqual(include ? [of(7, 36)] : []);
      for (const [index, list] of counts.entries()) {
        const prompt = index < 2 ? 3 : 4;
        expect(list.at(-1)).toEqual(include ? of(prompt, 9) : undefined);
        if (!include) continue;
        expect(list.length).toBeGreaterThan(1);
        const tokens = (list as { completion_tokens: number }[]).map((each) => each.completion_tokens);
        expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
      }
    }
  });

  it('accepts prompts as token ids, and ends at texts and tokens of stop', async () => {
    const server = await testServer();
    const ask = (more: object) =>
      post(`${server.url}/v1/completions`, {
        prompt: [111, 110, 101],
        seed: 1,
        max_tokens: 12,
        ignore_eos: true,
        ...more,
      });
    const { json: free } = await ask({ return_token_ids: true });
    const third = free.choices[0]?.token_ids[2];
    const { json: stopped } = await ask({ stop_token_ids: [third], return_token_ids: true });
    expect(stopped.choices[0]).toMatchObject({
      token_ids: free.choices[0]?.token_ids.slice(0, 3),
      finish_reason: 'stop',
      stop_reason: third,
    });
    const [sample] = await drawn(server, 'one', { seed: 1, maxNewTokens: 12, ignoreEos: true });
    // Random weights produce many bytes that are not valid characters.
    const end = /[ -~]+/.exec((sample as Sample).text as string)?.[0] as string;
    const { json: text } = await ask({ stop: end });
    expect(text.choices[0]).toMatchObject({ finish_reason: 'stop', stop_reason: end });
    expect(text.choices[0]?.text).toBe(sample?.text?.slice(0, sample.text.indexOf(end)));
  });

  it('can echo the prompt, return its log-probabilities, and generate no token', async () => {
    const server = await testServer();
    const { json } = await post(`${server.url}/v1/completions`, {
      prompt: 'one',
      max_tokens: 0,
      echo: true,
      logprobs: 0,
      prompt_logprobs: 0,
      return_tokens_as_token_ids: true,
    });
    const [score] = await server.model.score([promptTokens(server.served.tokenizer, 'one')]);
    const logprobs = [...(score?.logprobs ?? [])];
    expect(json.choices[0]).toMatchObject({ text: 'one', finish_reason: 'length' });
    expect(json.choices[0]?.logprobs).toMatchObject({
      tokens: ['token_id:111', 'token_id:110', 'token_id:101'],
      token_logprobs: [null, ...logprobs],
    });
    // The keys are ids already, so that the texts stay, as in vLLM.
    expect(json.choices[0]?.prompt_logprobs).toEqual([
      null,
      { 110: { logprob: logprobs[0], decoded_token: 'n' } },
      { 101: { logprob: logprobs[1], decoded_token: 'e' } },
    ]);
    expect(json.usage).toEqual({ prompt_tokens: 3, completion_tokens: 0, total_tokens: 3 });
  });

  it('gives alternatives to the tokens of a prompt too, as lm-eval reads them', async () => {
    const server = await testServer();
    const prompts = ['one', 'another prompt'];
    const { json } = await post(`${server.url}/v1/completions`, {
      prompt: prompts,
      ...{ max_tokens: 1, temperature: 0, echo: true, logprobs: 2, prompt_logprobs: 1 },
      return_tokens_as_token_ids: true,
    });
    for (const [p, prompt] of prompts.entries()) {
      const ids = promptTokens(server.served.tokenizer, prompt);
      const choice = json.choices[p]!;
      const { token_logprobs: own, top_logprobs: top } = choice.logprobs as {
        token_logprobs: number[];
        top_logprobs: Record<string, number>[];
      };
      expect([own.length, top.length]).toEqual([ids.length + 1, ids.length + 1]);
      expect(top[0]).toBeNull();
      for (let i = 1; i <= ids.length; i++) {
        // The model in process: what would follow the tokens before.
        const [[next] = []] = await server.model.generate([ids.slice(0, i)], {
          ...{ maxNewTokens: 1, topLogprobs: 2, temperature: 0, ignoreEos: true },
        });
        const likeliest = next?.topLogprobs?.[0] ?? [];
        const values = top[i] as Record<string, number>;
        for (const { token, logprob } of likeliest)
          expect(values[`token_id:${token}`]).toBeCloseTo(logprob, 4);
        // lm-eval takes a token as greedy where its value is the largest.
        expect(Object.values(values)).toContain(own[i]);
        if (i === ids.length) continue;
        const { prompt_logprobs: given } = choice as { prompt_logprobs: Record<string, object>[] };
        expect(Object.keys(given[i] as object).sort()).toEqual(
          [...new Set([`${likeliest[0]?.token}`, `${ids[i]}`])].sort(),
        );
      }
    }
  });

  it('takes any whole number as seed, and draws anew for −1, as vLLM does', async () => {
    const server = await testServer();
    const draw = async (seed: number) => {
      const asked = { prompt: 'one', max_tokens: 16, ignore_eos: true, return_token_ids: true, seed };
      return (await post(`${server.url}/v1/completions`, asked)).json.choices[0]?.token_ids;
    };
    const [five, again, negative, large, random, other] = await Promise.all(
      [5, 5, -5, -(2 ** 62), -1, -1].map(draw),
    );
    expect(five).toEqual(again);
    expect(new Set([five, negative, large, random, other].map(String)).size).toBe(5);
    const [sample] = await drawn(server, 'one', { seed: 2 ** 53 - 5, maxNewTokens: 16, ignoreEos: true });
    expect(negative).toEqual(sample?.tokens);
  });

  it('passes penalties on, and an empty stop text is none', async () => {
    const server = await testServer();
    const asked = { prompt: 'one', max_tokens: 30, temperature: 0, ignore_eos: true, return_token_ids: true };
    const penalties = { presence_penalty: 1.5, frequency_penalty: 0.5, repetition_penalty: 1.3 };
    const { json } = await post(`${server.url}/v1/completions`, { ...asked, ...penalties, stop: '' });
    const [sample] = await drawn(server, 'one', {
      ...{ maxNewTokens: 30, temperature: 0, ignoreEos: true },
      ...{ presencePenalty: 1.5, frequencyPenalty: 0.5, repetitionPenalty: 1.3 },
    });
    expect(json.choices[0]?.token_ids).toEqual(sample?.tokens);
  });

  it('says where in the text a token begins, whatever is written for it', async () => {
    const server = await testServer();
    // The three bytes of a character.
    const asked = { prompt: [0xe2, 0x82, 0xac, 65], max_tokens: 3, ignore_eos: true, echo: true, seed: 3 };
    for (const more of [{}, { return_tokens_as_token_ids: true }]) {
      const { json } = await post(`${server.url}/v1/completions`, { ...asked, ...more, logprobs: 0 });
      const { text, logprobs } = json.choices[0]!;
      const { text_offset: offsets } = logprobs as { text_offset: number[] };
      expect(offsets.slice(0, 5)).toEqual([0, 0, 0, 1, 2]);
      expect(Math.max(...offsets)).toBeLessThanOrEqual(text.length);
    }
  });

  it('counts characters as Python does, and goes on counting where a stream holds text back', async () => {
    const server = await testServer();
    const asked = { model: 'pupil', max_tokens: 12, seed: 3, logprobs: 1 };
    const echo = await client(server).completions.create({ ...asked, prompt: '🍎é🍎x', echo: true });
    const bytes = [...new TextEncoder().encode('🍎é🍎x')].length;
    expect(echo.choices[0]?.logprobs?.text_offset?.slice(0, bytes)).toEqual([
      0, 0, 0, 0, 1, 1, 2, 2, 2, 2, 3,
    ]);
    // Every text is held back, since it may become this one.
    const begun = `${echo.choices[0]?.text.slice('🍎é🍎x'.length)}, and no more`;
    const held = { ...asked, prompt: '🍎é🍎x', stop: [begun] };
    const whole = await client(server).completions.create(held);
    const offsets: number[] = [];
    for await (const { choices } of await client(server).completions.create({ ...held, stream: true }))
      offsets.push(...(choices[0]?.logprobs?.text_offset ?? []));
    expect(offsets).toEqual(whole.choices[0]?.logprobs?.text_offset);
  });

  it('draws the rollouts of a training process if the request numbers rounds and prompts', async () => {
    const server = await testServer();
    const { json } = await post(`${server.url}/v1/completions`, {
      ...{
        prompt: 'one',
        max_tokens: 5,
        seed: 9,
        iteration: 4,
        prompt_ids: [17],
        n: 2,
        return_token_ids: true,
      },
    });
    const samples = await drawn(server, 'one', {
      n: 2,
      seed: 9,
      iteration: 4,
      promptIds: [17],
      maxNewTokens: 5,
    });
    expect(json.choices.map((choice) => choice.token_ids)).toEqual(samples.map(({ tokens }) => tokens));
  });
});

describe('/v1/chat/completions', () => {
  it('renders messages by the chat template', async () => {
    const server = await testServer();
    const answer = await client(server).chat.completions.create({
      model: 'pupil',
      messages,
      seed: 5,
      max_completion_tokens: 7,
      logprobs: true,
      top_logprobs: 3,
    });
    const [sample] = await drawn(server, messages, { seed: 5, maxNewTokens: 7, topLogprobs: 3 });
    const { tokenizer } = server.served;
    const [choice] = answer.choices;
    expect(choice?.message).toEqual({ role: 'assistant', content: sample?.text, refusal: null });
    expect(choice?.logprobs?.content?.map(({ logprob, bytes }) => ({ logprob, bytes }))).toEqual(
      sample?.tokens.map((token, t) => ({
        logprob: sample.logprobs[t],
        bytes: [...tokenizer.tokenBytes(token)],
      })),
    );
    expect(choice?.logprobs?.content?.[0]?.top_logprobs.map(({ logprob }) => logprob)).toEqual(
      sample?.topLogprobs?.[0]?.map(({ logprob }) => logprob),
    );
  });

  it('gives the ids of the prompt beside the choices, as vLLM does', async () => {
    const server = await testServer();
    const asked = { model: 'pupil', messages, max_tokens: 2, seed: 5, n: 2, return_token_ids: true };
    const ids = { prompt_token_ids: [...promptTokens(server.served.tokenizer, messages)] };
    const whole = await client(server).chat.completions.create(asked);
    expect(whole).toMatchObject(ids);
    expect(whole.choices.map((choice) => 'prompt_token_ids' in choice)).toEqual([false, false]);
    const withIds: number[] = [];
    const stream = await client(server).chat.completions.create({ ...asked, stream: true });
    for await (const chunk of stream)
      if ('prompt_token_ids' in chunk) withIds.push(chunk.choices[0]?.index ?? -1);
    expect(withIds.sort()).toEqual([0, 1]);
  });

  it('streams the reply', async () => {
    const server = await testServer();
    const asked = { model: 'pupil', messages, seed: 5, max_tokens: 20, logprobs: true, n: 2 };
    const whole = await client(server).chat.completions.create(asked);
    const stream = await client(server).chat.completions.create({ ...asked, stream: true });
    const contents = ['', ''];
    const roles: unknown[] = [];
    const logprobs: number[][] = [[], []];
    for await (const { choices } of stream) {
      for (const { index, delta, logprobs: scored } of choices) {
        contents[index] += delta.content ?? '';
        if (delta.role) roles.push([index, delta.role]);
        logprobs[index]?.push(...(scored?.content ?? []).map(({ logprob }) => logprob));
      }
    }
    expect(contents).toEqual(whole.choices.map(({ message }) => message.content));
    expect(roles.sort()).toEqual([
      [0, 'assistant'],
      [1, 'assistant'],
    ]);
    expect(logprobs).toEqual(
      whole.choices.map((choice) => choice.logprobs?.content?.map(({ logprob }) => logprob)),
    );
  });

  it('limits a reply to the rest of the context by default', async () => {
    const server = await testServer({ limits: { newTokens: 33 } });
    const { json } = await post(`${server.url}/v1/chat/completions`, { messages, ignore_eos: true });
    expect(json.usage.completion_tokens).toBe(33);
    expect(json.choices[0]?.finish_reason).toBe('length');
  });
});

describe('a client that disconnects', () => {
  it.each([true, false])('ends its request (stream: %s)', async (stream) => {
    const server = await testServer();
    const gone = new AbortController();
    const body = JSON.stringify({ prompt: 'one', max_tokens: 500, n: 8, stream, ignore_eos: true });
    const headers = { 'content-type': 'application/json' };
    const asked = fetch(`${server.url}/v1/completions`, {
      method: 'POST',
      headers,
      body,
      signal: gone.signal,
    });
    await until(async () => (await metric(server.url, 'steptrain_rows{state="running"}')) > 0);
    gone.abort();
    await asked.then((response) => response.text()).catch(() => {});
    await until(async () => (await metric(server.url, 'steptrain_rows{state="running"}')) === 0);
    expect(await metric(server.url, 'steptrain_requests_cancelled_total')).toBe(1);
    expect(await metric(server.url, 'steptrain_generated_tokens_total')).toBeLessThan(8 * 500);
    expect(await metric(server.url, 'steptrain_cache_pages{state="used"}')).toBe(0);
    expect(server.errors).toEqual([]);
  });
});

it('says which model of the package is for conversations, where this one is not', async () => {
  const { model } = await testServer();
  const server = await serve(
    { name: 'base', model, tokenizer: byteTokenizer() },
    { port: 0, cacheBytes: 8_000_000 },
  );
  const { status, json } = await post(`${server.url}/v1/chat/completions`, { messages });
  await server.close(0);
  expect([status, json.error.message]).toEqual([
    400,
    'this model has no chat template; use /v1/completions, or serve a model that has one, such as word-problems',
  ]);
});

it('counts the times of tokens, streamed or not', async () => {
  const server = await testServer();
  for (const stream of [false, true]) {
    const asked = { prompt: 'one', n: 2, max_tokens: 4, seed: 1, ignore_eos: true, stream };
    await post(`${server.url}/v1/completions`, asked);
    const counted = await Promise.all(
      ['first_token', 'token'].map((name) => metric(server.url, `steptrain_${name}_seconds_count`)),
    );
    expect(counted).toEqual(stream ? [4, 4] : [2, 2]);
  }
});

it('lists its models', async () => {
  const server = await testServer();
  const { data } = await client(server).models.list();
  expect(data).toMatchObject([{ id: 'pupil', object: 'model', max_model_len: 512 }]);
  expect(await client(server).models.retrieve('pupil')).toEqual(data[0]);
  await expect(client(server).models.retrieve('a/b')).rejects.toMatchObject({
    status: 404,
    code: 'model_not_found',
    message: expect.stringContaining('there is no model "a/b"; known are pupil'),
  });
});

it('answers 64 concurrent streams of a real client, each with the samples of its request', async () => {
  const server = await testServer({ maxRows: 16 });
  const ask = async (i: number) => {
    const stream = await client(server).completions.create({
      model: 'pupil',
      prompt: `prompt ${i}`,
      seed: i,
      max_tokens: 10,
      stream: true,
    });
    let text = '';
    let reason: unknown;
    for await (const { choices } of stream) {
      text += choices[0]?.text ?? '';
      reason = choices[0]?.finish_reason ?? reason;
    }
    return [text, reason];
  };
  const answers = await Promise.all(Array.from({ length: 64 }, (_, i) => ask(i)));
  for (const [i, answer] of answers.entries()) {
    const [sample] = await drawn(server, `prompt ${i}`, { seed: i, maxNewTokens: 10 });
    expect(answer).toEqual([sample?.text, sample?.finishReason]);
  }
});

it('holds no more after 300 requests, of which many were cancelled, than after 20', async () => {
  const server = await testServer({ maxRows: 8 });
  const ask = async (i: number) => {
    const stream = await client(server).completions.create({
      ...{ model: 'pupil', prompt: `prompt ${i}`, seed: i, max_tokens: 4, n: 2 },
      stream: true,
    });
    for await (const _ of stream) if (i % 3 === 0) break;
  };
  const rounds = async (from: number, to: number) => {
    for (let i = from; i < to; i += 20) await Promise.all(Array.from({ length: 20 }, (_, k) => ask(i + k)));
    await until(async () => (await metric(server.url, 'steptrain_rows{state="running"}')) === 0);
  };
  await rounds(0, 20);
  const { liveBytes } = server.device.stats();
  await rounds(20, 300);
  // Steps of other numbers of rows, up to 8, are recorded as they come. A tensor takes at least 256 bytes, so one lost by each request is more.
  expect(server.device.stats().liveBytes).toBeLessThan(liveBytes + 2 ** 16);
  expect(await metric(server.url, 'steptrain_rows{state="waiting"}')).toBe(0);
  expect(await metric(server.url, 'steptrain_cache_pages{state="used"}')).toBe(0);
  expect(server.errors).toEqual([]);
});
