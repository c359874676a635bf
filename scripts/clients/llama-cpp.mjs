// What was trained here runs in llama.cpp: an adapter of a few steps is merged into GGUF files, and llama.cpp, as the prebuilt
// node-llama-cpp carries it, cuts prompts into the same tokens and answers them greedily with the same ones.
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadModel, openDevice } from '../../dist/entries/index.js';
import { CACHE, run } from './environment.mjs';
import { writeQwen35 } from './random-qwen35.mjs';

const STEPTRAIN = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
const PROMPTS = ['What is 12 + 7?', 'Tom has 3 apples.\n\nHe buys 4. ', '  Zwei Äpfel kosten 3 €.'];
const NEW_TOKENS = 16;
/**
 * Between our token and theirs where they first differ, in log-probability. llama.cpp rounds activations, to 8 bits beside
 * quantised weights, so that tokens that are nearly as likely may change places.
 */
const NEAR = { f32: 0.001, f16: 0.05, bf16: 0.05, q8_0: 0.25, q4_0: 0.25 };

const PROGRAM = `import { getLlama } from 'node-llama-cpp';
const [modelPath, prompts, newTokens] = [process.argv[2], JSON.parse(process.argv[3]), Number(process.argv[4])];
// One thread: its own wait for each other by spinning.
const llama = await getLlama({ gpu: false, build: 'never', logLevel: 'error', maxThreads: 1 });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({ sequences: prompts.length, contextSize: 512 });
const answers = [];
for (const prompt of prompts) {
  const ids = model.tokenize(prompt);
  const tokens = [];
  for await (const token of context.getSequence().evaluate(ids, { temperature: 0, yieldEogToken: true })) {
    tokens.push(token);
    if (tokens.length === newTokens || model.isEogToken(token)) break;
  }
  answers.push({ ids, tokens });
}
console.log(JSON.stringify(answers));
process.exit(0);
`;

async function installed() {
  const directory = join(CACHE, 'llama-cpp');
  if (existsSync(join(directory, 'node_modules/node-llama-cpp'))) return directory;
  console.log(`llama.cpp: installing node-llama-cpp into ${directory}, once`);
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, 'package.json'), '{"private": true, "type": "module"}');
  await run('npm', ['install', '--silent', '--no-audit', '--no-fund', 'node-llama-cpp@3'], {
    cwd: directory,
  });
  return directory;
}

/** How much likelier our model finds its own token than theirs, where they first differ. */
async function apart(model, ids, tokens, other) {
  const at = tokens.findIndex((token, i) => token !== other[i]);
  const before = [...ids, ...tokens.slice(0, at)];
  const logprob = async (token) => (await model.score([[...before, token]]))[0].logprobs.at(-1);
  return { at, by: Math.abs((await logprob(tokens[at])) - (await logprob(other[at]))) };
}

/** Prompts as llama.cpp and we cut them, and the greedy tokens after each. */
async function compared(device, program, file, dtype, of = '') {
  const checks = [];
  const theirs = JSON.parse(
    await run(process.execPath, [program, file, JSON.stringify(PROMPTS), String(NEW_TOKENS)]),
  );
  const model = await loadModel(device, file, { dtype: 'f32' });
  const tokenizer = await model.tokenizer();
  for (const [i, prompt] of PROMPTS.entries()) {
    const ids = tokenizer.encode(prompt, { addSpecialTokens: false });
    const [[{ tokens }]] = await model.generate([ids], { maxNewTokens: NEW_TOKENS, temperature: 0 });
    const { ids: cut, tokens: other } = theirs[i];
    const name = `${of}${dtype}, ${JSON.stringify(prompt)}`;
    checks.push({ name: `${name}: same prompt`, ok: String(cut) === String(ids), detail: '' });
    const same = String([...tokens]) === String(other);
    const { at, by } = same ? { at: tokens.length, by: 0 } : await apart(model, ids, [...tokens], other);
    const detail = same ? '' : `token ${at} is another, ${by.toFixed(3)} less likely`;
    checks.push({ name: `${name}: same greedy tokens`, ok: by < NEAR[dtype], detail });
  }
  model.dispose();
  return checks;
}

/** @returns checks, a line each */
export async function llamaCpp(directory) {
  const program = join(await installed(), 'greedy.mjs');
  writeFileSync(program, PROGRAM);
  const folder = mkdtempSync(join(tmpdir(), 'steptrain-llama-cpp-'));
  const device = openDevice('cpu');
  const checks = [];
  try {
    const settings = [
      `model.base=${directory}`,
      'data.arithmetic.samples=20',
      'sft.max_steps=4',
      'sft.tokens_per_step=256',
      'sft.load_best_model_at_end=false',
      'eval.max_samples=2',
    ];
    const set = settings.flatMap((setting) => ['--set', setting]);
    await run(process.execPath, [
      STEPTRAIN,
      'run',
      'quickstart_sft',
      ...set,
      '--output',
      join(folder, 'run'),
    ]);
    for (const dtype of ['f16', 'bf16', 'q8_0', 'q4_0']) {
      const file = join(folder, `${dtype}.gguf`);
      await run(process.execPath, [
        STEPTRAIN,
        'merge',
        join(folder, 'run'),
        file,
        '--dtype',
        dtype,
        '--no-check',
      ]);
      checks.push(...(await compared(device, program, file, dtype)));
    }
    for (const name of ['qwen35', 'qwen35moe']) {
      const delta = join(folder, name);
      mkdirSync(delta);
      await writeQwen35(delta, { experts: name === 'qwen35moe' });
      // A random model is unsure of its next token, so roundings would change it: f32 alone.
      const file = join(folder, `${name}.gguf`);
      await run(process.execPath, [STEPTRAIN, 'merge', delta, file, '--dtype', 'f32', '--no-check']);
      checks.push(...(await compared(device, program, file, 'f32', `${name}, `)));
    }
  } finally {
    device.dispose();
    rmSync(folder, { recursive: true, force: true });
  }
  return checks;
}
