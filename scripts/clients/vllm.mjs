// A real vLLM on the CPU as a source of rollouts and as a judge, beside the model in this process, and beside `steptrain serve`.
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { createAdapter } from '../../dist/entries/ops.js';
import { ChatClient, remoteSource } from '../../dist/entries/train.js';
import { Generator } from '../../dist/generate/generator.js';
import { loadDecoder } from '../../dist/models/load.js';
import { PEFT_DEFAULTS } from '../../dist/weights/adapter-config.js';

/** Of log-probabilities: two programs in f32. */
const NEAR = 2e-3;

const post = async (url, path, body) => {
  const response = await fetch(url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${path}: ${response.status}: ${text.slice(0, 400)}`);
  return text.startsWith('{') ? JSON.parse(text) : text;
};

/**
 * Calls `report` with each check as it ends; `own` is the address of a steptrain server of the same model, `weights` the directory that
 * vLLM serves, and `kill` ends it.
 */
export async function vllm({ url, own, name, local, folder, weights, kill, report }) {
  const { model, tokenizer } = local;
  const check = async (what, body) => {
    try {
      report({ name: what, ok: true, detail: (await body()) ?? '' });
    } catch (error) {
      report({ name: what, ok: false, detail: String(error).slice(0, 800) });
    }
  };
  const questions = ['The capital of France is', 'Question: 3 apples and 4 more?\nAnswer:'];
  const prompts = questions.map((text) => tokenizer.encode(text));
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const source = remoteSource({
    url,
    server: 'vllm',
    model: name,
    adapters: { directory: folder },
    weights: { directory: weights },
    attempts: 2,
  });
  const greedy = { n: 1, maxNewTokens: 16, temperature: 0, seed: 1 };

  await check('greedy rollouts', async () => {
    const there = await source.sample(prompts, greedy);
    return alike(there, await model.generate(prompts, greedy));
  });
  await check('sampled rollouts, the same again with the same seed', async () => {
    const options = {
      n: 4,
      maxNewTokens: 12,
      temperature: 0.9,
      topP: 0.95,
      topK: 40,
      minP: 0.01,
      seed: 7,
      stop: ['.'],
    };
    const [first, second] = [await source.sample(prompts, options), await source.sample(prompts, options)];
    const tokens = (samples) => samples.flat().map((sample) => sample.tokens.join());
    if (tokens(first).join('|') !== tokens(second).join('|')) throw new Error('other samples');
    if (new Set(tokens(first)).size < 4) throw new Error('the samples of a prompt are the same');
    const scores = await model.score(
      first.flat().map(({ tokens: drawn }, i) => [...prompts[i >> 2], ...drawn]),
    );
    const gaps = first
      .flat()
      .flatMap(({ logprobs }, i) =>
        Array.from(logprobs, (logprob, t) =>
          Math.abs(logprob - scores[i].logprobs[prompts[i >> 2].length - 1 + t]),
        ),
      );
    return within(Math.max(...gaps));
  });
  await check('adapters: published, sampled from, replaced, taken away', async () => {
    const adapters = [1, 2].map((seed) => someAdapter(model, seed));
    const gaps = [];
    for (const [i, adapter] of adapters.entries()) {
      await source.publish(adapter, i);
      const there = await source.sample(prompts, greedy);
      gaps.push(alike(there, await model.generate(prompts, { ...greedy, role: { adapter } })));
      const { data } = await (await fetch(`${url}/v1/models`)).json();
      if (data.length !== 2) throw new Error(`models: ${data.map(({ id }) => id).join(', ')}`);
      if (readdirSync(folder).length !== 1) throw new Error('published files are left');
    }
    await source.close();
    const { data } = await (await fetch(`${url}/v1/models`)).json();
    if (data.length !== 1 || readdirSync(folder).length > 0)
      throw new Error('the last adapter is still there');
    for (const adapter of adapters) adapter.dispose();
    return gaps.join('; ');
  });
  await check('a judge', async () => {
    const messages = [{ role: 'user', content: 'Is 3 + 4 = 7 right? Answer yes or no.' }];
    const client = new ChatClient({ url, model: name });
    const reply = await client.ask(messages, { maxTokens: 16 }, new AbortController().signal);
    client.close();
    const text = tokenizer.applyChatTemplate(messages, { addGenerationPrompt: true });
    const [[sample]] = await model.generate([tokenizer.encode(text, { addSpecialTokens: false })], {
      ...greedy,
      tokenizer,
    });
    if (reply.text !== sample.text) throw new Error(`${JSON.stringify(reply)} | ${sample.text}`);
    return JSON.stringify(reply.text);
  });

  // The same request to both servers.
  const both = async (path, body) =>
    Promise.all([url, own].map((address) => post(address, path, { model: name, ...body })));
  const asked = {
    prompt: questions[1],
    max_tokens: 24,
    temperature: 0,
    ignore_eos: true,
    return_token_ids: true,
  };
  for (const penalty of [
    { presence_penalty: 1 },
    { frequency_penalty: 0.6 },
    { repetition_penalty: 1.3 },
    { presence_penalty: 0.4, frequency_penalty: 0.3, repetition_penalty: 1.1 },
  ])
    await check(`both servers: ${JSON.stringify(penalty)}`, async () => {
      const [theirs, ours] = await both('/v1/completions', { ...asked, ...penalty });
      return sameText(theirs.choices[0].text, ours.choices[0].text);
    });
  await check('both servers: log-probabilities of a prompt', async () => {
    const one = { ...asked, max_tokens: 1, return_token_ids: false };
    const ask = async (more) =>
      (await both('/v1/completions', { ...one, ...more })).map(({ choices }) => choices[0]);
    const [theirs, ours] = await ask({ echo: true, logprobs: 3 });
    const [given, written] = await ask({ prompt_logprobs: 2 });
    const gaps = [];
    theirs.logprobs.top_logprobs.forEach((top, i) => {
      const other = ours.logprobs.top_logprobs[i];
      if ((top === null) !== (other === null)) throw new Error(`top_logprobs[${i}]: ${top} | ${other}`);
      gaps.push(...gapsOf(top ?? {}, other ?? {}, `top_logprobs[${i}]`));
    });
    const flat = (entry) =>
      Object.fromEntries(Object.entries(entry ?? {}).map(([id, { logprob }]) => [id, logprob]));
    given.prompt_logprobs.forEach((entry, i) => {
      gaps.push(...gapsOf(flat(entry), flat(written.prompt_logprobs[i]), `prompt_logprobs[${i}]`));
    });
    for (const key of ['tokens', 'text_offset'])
      if (String(theirs.logprobs[key]) !== String(ours.logprobs[key]))
        throw new Error(`${key}: ${theirs.logprobs[key]} | ${ours.logprobs[key]}`);
    if (theirs.text !== ours.text) throw new Error(`${theirs.text} | ${ours.text}`);
    return within(Math.max(...gaps));
  });
  await check('both servers: a reply that is begun, and a conversation with a developer', async () => {
    const begun = [
      { role: 'user', content: 'What is 3 + 4?' },
      { role: 'assistant', content: 'Step 1: 3 + 4 =' },
    ];
    const few = { max_tokens: 12, temperature: 0 };
    const prefill = { ...few, messages: begun, add_generation_prompt: false, continue_final_message: true };
    const said = [];
    for (const body of [
      prefill,
      { ...few, messages: [{ role: 'system', content: 'Be brief.' }, begun[0]] },
    ]) {
      const [theirs, ours] = await both('/v1/chat/completions', body);
      said.push(sameText(theirs.choices[0].message.content, ours.choices[0].message.content));
    }
    return said.join(' | ');
  });

  await check('all weights, read anew from the directory that it serves', async () => {
    const adapter = someAdapter(model, 3);
    const saved = join(folder, 'merged');
    await adapter.save(saved);
    adapter.dispose();
    const trained = await loadDecoder(model.decoder.device, weights, { dtype: 'f32', merged: saved });
    const generator = new Generator(trained);
    const before = await source.sample(prompts, greedy);
    await source.publishWeights(trained);
    const there = await source.sample(prompts, greedy);
    const gaps = alike(there, await generator.generate(prompts, greedy).samples);
    for (const owned of [generator, trained]) owned.dispose();
    // The first token of each is drawn after the same text, whatever came of it.
    const moved = Math.max(
      ...there.flatMap((samples, p) =>
        samples.map(({ logprobs }, s) => Math.abs(logprobs[0] - before[p][s].logprobs[0])),
      ),
    );
    if (!(moved > 2 * NEAR)) throw new Error(`log-probabilities moved by ${moved} alone`);
    await source.publishWeights(model.decoder);
    const back = alike(await source.sample(prompts, greedy), await model.generate(prompts, greedy));
    return `moved by ${moved.toFixed(2)}, ${gaps}; back: ${back}`;
  });
  await check('killed while it samples: a sentence', async () => {
    const long = { ...greedy, n: 8, maxNewTokens: 400, temperature: 1, ignoreEos: true };
    const drawn = source.sample(prompts, long).then(
      () => 'samples of a server that was killed',
      (error) => error.message,
    );
    await new Promise((next) => setTimeout(next, 2000));
    await kill();
    const said = await drawn;
    if (!/^prompt \d+ failed 2 times/.test(said)) throw new Error(said);
    return said;
  });
  await source.close();
}

function alike(there, here) {
  const gaps = there.flatMap((samples, p) =>
    samples.flatMap(({ tokens, logprobs }, s) => {
      const own = here[p][s];
      if (tokens.join() !== own.tokens.join()) throw new Error(`prompt ${p}: ${tokens} | ${own.tokens}`);
      return Array.from(logprobs, (logprob, t) => Math.abs(logprob - own.logprobs[t]));
    }),
  );
  return within(Math.max(...gaps));
}

function within(gap) {
  if (!(gap < NEAR)) throw new Error(`log-probabilities differ by ${gap}`);
  return `log-probabilities within ${gap.toExponential(1)}`;
}

function gapsOf(one, other, what) {
  const names = [one, other].map((entries) => Object.keys(entries).sort().join());
  if (names[0] !== names[1]) throw new Error(`${what}: ${names[0]} | ${names[1]}`);
  return Object.keys(one).map((key) => Math.abs(one[key] - other[key]));
}

function sameText(one, other) {
  if (one !== other) throw new Error(`${JSON.stringify(one)} | ${JSON.stringify(other)}`);
  return JSON.stringify(one);
}

/** One that changes what the model writes. */
function someAdapter({ decoder }, seed) {
  const { hiddenSize } = decoder.config;
  const config = {
    ...PEFT_DEFAULTS,
    r: 4,
    loraAlpha: 8,
    targetModules: { kind: 'names', names: ['o_proj'] },
    taskType: 'CAUSAL_LM',
  };
  let state = seed;
  const random = () => {
    state = (1664525 * state + 1013904223) % 2 ** 32;
    return state / 2 ** 31 - 1;
  };
  const first = (name) =>
    name.includes('lora_B')
      ? Float32Array.from({ length: hiddenSize * 4 }, () => 0.05 * random())
      : undefined;
  return createAdapter(decoder.device, decoder.config, config, { seed, first });
}
