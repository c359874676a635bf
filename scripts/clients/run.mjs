// Real clients against `steptrain serve`, our own client against a real vLLM, our files in llama.cpp, Parquet of others, chat templates and tokenizers beside their libraries: npm run test:clients [-- --model DIR] [--only NAMES] [--record DIR].
// Each client has an environment of its own in the user's cache. Exits with 1 where a client was answered wrongly.
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { loadModel, loadTokenizer, openDevice } from '../../dist/entries/index.js';
import {
  CACHE,
  clientNode,
  clientPython,
  mathVerifyPython,
  oraclePython,
  run,
  transformers4,
  vllmPython,
} from './environment.mjs';
import { llamaCpp } from './llama-cpp.mjs';
import { lmEval } from './lm-eval.mjs';
import { parquet } from './parquet.mjs';
import { rope } from './rope.mjs';
import { serveSteptrain, serveVllm } from './server.mjs';
import { templates } from './templates.mjs';
import { tokenizers } from './tokenizers.mjs';
import { vllm } from './vllm.mjs';

/** Parts that need no model and no server. */
const TEXTS = ['templates', 'tokenizers', 'answers', 'parquet', 'rope'];
const CLIENTS = ['openai-node', 'openai-python', 'lm-eval', 'vllm', 'llama.cpp', ...TEXTS];
const { values: options } = parseArgs({
  options: {
    model: { type: 'string' },
    only: { type: 'string', default: CLIENTS.join(',') },
    record: { type: 'string' },
  },
});
const chosen = options.only.split(',');
const unknown = chosen.find((name) => !CLIENTS.includes(name));
if (unknown !== undefined) {
  console.error(`--only expects some of ${CLIENTS.join(', ')}, found ${unknown}`);
  process.exit(1);
}

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const SHARED = here('../../../shared');

/** The directory of the real model that lies beside the repository, or of one of the package. */
async function modelDirectory() {
  if (options.model !== undefined) return resolve(options.model);
  const files = join(SHARED, 'models', 'smollm2-files');
  if (!existsSync(files)) return here('../../assets/word-problems');
  const directory = join(CACHE, 'smollm2');
  if (!existsSync(join(directory, 'model.safetensors'))) {
    mkdirSync(directory, { recursive: true });
    for (const file of [
      'config.json',
      'generation_config.json',
      'tokenizer_config.json',
      'chat_template.jinja',
    ])
      copyFileSync(join(files, file), join(directory, file));
    writeFileSync(
      join(directory, 'tokenizer.json'),
      gunzipSync(readFileSync(join(files, 'tokenizer.json.gz'))),
    );
    const gguf = join(SHARED, 'models', 'smollm2-135m-instruct.Q4_1.gguf');
    await run(await clientPython(), [join(SHARED, 'models', 'dequantise.py'), gguf, directory]);
  }
  return directory;
}

/** The first problems of GSM8K's test part where they lie beside the repository, else two of our own. */
function problems() {
  const file = join(SHARED, 'data', 'gsm8k', 'test.jsonl');
  if (!existsSync(file))
    return [
      { question: 'Ann has 3 apples and buys 4 more. How many has she?', answer: '3 + 4 = 7\n#### 7' },
      { question: 'A box has 12 pens, and 5 are red. How many are not?', answer: '12 - 5 = 7\n#### 7' },
    ];
  return readFileSync(file, 'utf8')
    .split('\n', 3)
    .map((line) => JSON.parse(line));
}

const lines = (printed) =>
  printed
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));

/** Prints the checks of a client; the names of those that failed are added to `failed`. */
function report(client, checks, failed) {
  for (const { name, ok, detail } of checks) {
    console.log(`${ok ? 'ok    ' : 'FAILED'} ${client}: ${name}${detail === '' ? '' : `: ${detail}`}`);
    if (!ok) failed.push(`${client}: ${name}`);
  }
}

/** Checks of texts, each beside the library that decides. */
async function compareTexts() {
  const failed = [];
  if (chosen.includes('answers')) await answers();
  const checks = {
    parquet,
    templates: async () => templates(await oraclePython(), join(CACHE, 'templates')),
    tokenizers: async () => tokenizers(await oraclePython(), join(CACHE, 'tokenizers')),
    rope: async () =>
      rope({ python: await oraclePython(), python4: await transformers4(), folder: join(CACHE, 'rope') }),
  };
  for (const [client, check] of Object.entries(checks).filter(([name]) => chosen.includes(name)))
    report(client, await check(), failed);
  return failed;
}

async function main() {
  const texts = await compareTexts();
  if (chosen.every((name) => TEXTS.includes(name))) return conclude(texts);
  await serveClients(texts);
}

function conclude(failed) {
  console.log(failed.length === 0 ? 'All clients were answered rightly.' : `${failed.length} failed.`);
  process.exitCode = failed.length === 0 ? 0 : 1;
}

async function serveClients(failed) {
  const directory = await modelDirectory();
  const name = directory.split('/').at(-1);
  const device = openDevice('cpu');
  const model = await loadModel(device, directory, { dtype: 'f32' });
  const local = { model, tokenizer: await loadTokenizer(directory) };
  const server = await serveSteptrain(directory, '--dtype', 'f32', '--name', name);
  /** What happened at `recorder` since the last call goes to a file of that name. */
  const record = (client, recorder) => {
    const exchanges = recorder.exchanges.splice(0);
    if (options.record === undefined) return;
    mkdirSync(options.record, { recursive: true });
    writeFileSync(join(options.record, `${client}.json`), JSON.stringify(exchanges, null, 1));
  };
  const part = async (client, body) => {
    if (!chosen.includes(client)) return;
    const began = performance.now();
    await body().catch((error) =>
      report(client, [{ name: 'all of it', ok: false, detail: error.message }], failed),
    );
    record(client, server);
    console.log(`${client}: ${((performance.now() - began) / 1000).toFixed(0)} s`);
  };
  try {
    await part('openai-node', async () => {
      const folder = await clientNode();
      copyFileSync(here('openai-node.mjs'), join(folder, 'openai-node.mjs'));
      const args = [join(folder, 'openai-node.mjs'), `${server.url}/v1`, name];
      report('openai-node', lines(await run(process.execPath, args)), failed);
    });
    await part('openai-python', async () => {
      const args = [here('openai_python.py'), `${server.url}/v1`, name];
      report('openai-python', lines(await run(await clientPython(), args)), failed);
    });
    await part('lm-eval', async () => {
      const python = await clientPython();
      const folder = join(CACHE, 'tasks');
      const asked = { python, url: server.url, name, directory, problems: problems(), local, folder };
      report('lm-eval', await lmEval({ ...asked, isChat: local.tokenizer.hasChatTemplate }), failed);
    });
    await part('vllm', async () => {
      const python = await vllmPython();
      console.log('vllm: starting; this takes minutes');
      const weights = join(CACHE, 'served');
      rmSync(weights, { recursive: true, force: true });
      cpSync(directory, weights, { recursive: true, dereference: true });
      const other = await serveVllm(python, weights, name);
      try {
        const folder = join(CACHE, 'adapters');
        const each = (check) => report('vllm', [check], failed);
        const { url, kill } = other;
        await vllm({ url, own: server.url, name, local, folder, weights, kill, report: each });
      } finally {
        record('vllm-server', other);
        await other.stop();
      }
    });
    await part('llama.cpp', async () => report('llama.cpp', await llamaCpp(directory), failed));
  } finally {
    await server.stop();
    model.dispose();
    device.dispose();
  }
  conclude(failed);
}

/** Grades two thousand pairs of answers beside Math-Verify. */
async function answers() {
  const data = join(SHARED, 'data');
  if (!existsSync(join(data, 'answer-equivalence.jsonl'))) {
    console.log(
      `answers: skipped, for there is no ${join('shared', 'data', 'answer-equivalence.jsonl')} beside the repository`,
    );
    return;
  }
  const script = here('../answers-beside-math-verify.mjs');
  const python = await mathVerifyPython();
  console.log(await run(process.execPath, [script, '--data', data, '--python', python, '--pairs', '2000']));
  console.log('answers: every pair is judged rightly, or its kind is decided in research/answers.md');
}

await main();
