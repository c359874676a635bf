// What the word-problem models can do, and how they come into the package.
//   node scripts/word-base.mjs check MODEL [PROBLEMS]    scores by level, of 2,000 test problems each; MODEL as for --model
//   node scripts/word-base.mjs ship RUN assets/NAME      copies the model of a run, in bf16
//   node scripts/word-base.mjs deepen MODEL LAYERS DIR   adds layers on top that change nothing yet
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadModel } from '../dist/api/model.js';
import { modelConfigJson, modelWeights } from '../dist/architectures/table.js';
import { wordProblems } from '../dist/data/problems/generate.js';
import { solveWordProblems } from '../dist/eval/word-problems.js';
import { baseDirectory } from '../dist/models/base.js';
import { readWeight, saveDecoder } from '../dist/models/save.js';
import { PhiloxStream } from '../dist/random/philox.js';
import { openDevice } from '../dist/runtime/device.js';
import { loadTokenizer } from '../dist/tokenizer/load.js';
import { writeCheckpoint } from '../dist/weights/checkpoint-writer.js';
import { fromF32 } from '../dist/weights/convert.js';

const FILES = ['tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja'];
const percent = (share) => (100 * share).toFixed(1).padStart(6);

async function check(name, samples) {
  const tokenizer = await loadTokenizer(baseDirectory(name));
  const model = await loadModel(openDevice('cpu'), name);
  console.log(`${samples} test problems each, %   greedy  pass@1  pass@8  lucky  ended`);
  const sets = [1, 2, 3].map((level) => [
    `level ${level}`,
    { levels: [1, 2, 3].map((one) => Number(one === level)) },
  ]);
  for (const [title, options] of [
    ...sets,
    ['held-out templates', { levels: [1, 1, 1], templates: 'held_out' }],
  ]) {
    const problems = [...wordProblems({ seed: 1, samples, part: 'test', ...options })];
    const { greedy, passAt1, passAtK, luckyAnswers, ended, errors } = await solveWordProblems(
      model,
      tokenizer,
      problems,
    );
    console.log(`${title.padEnd(28)}`, ...[greedy, passAt1, passAtK, luckyAnswers, ended].map(percent));
    console.log('  wrong lines:', [...errors].map(([error, count]) => `${error} ${count}`).join(', '));
  }
}

async function ship(run, directory) {
  const from = join(run, 'model');
  const { decoder } = await loadModel(openDevice('cpu'), from);
  await saveDecoder(decoder, directory, { dtype: 'BF16' });
  for (const file of FILES) copyFileSync(join(from, file), join(directory, file));
}

/** New layers add 0 to the residual stream: their output projections are 0, all else is as in a model from random weights. */
async function deepen(name, layers, directory) {
  const from = baseDirectory(name);
  const { decoder } = await loadModel(openDevice('cpu'), from);
  const { config } = decoder;
  const known = new Set(modelWeights(config).map((weight) => weight.name));
  const slidingWindow = [...config.slidingWindow, ...Array(layers).fill(config.slidingWindow.at(-1))];
  const deeper = { ...config, numLayers: config.numLayers + layers, slidingWindow };
  const weights = modelWeights(deeper).map((weight, i) => ({
    ...weight,
    dtype: 'F32',
    data: async () =>
      fromF32(known.has(weight.name) ? await readWeight(decoder, weight.name) : initial(weight, i), 'F32'),
  }));
  await writeCheckpoint(directory, weights, { config: modelConfigJson(deeper) });
  for (const file of FILES) copyFileSync(join(from, file), join(directory, file));
}

function initial({ name, shape }, index) {
  const values = new Float32Array(shape.reduce((product, size) => product * size, 1));
  if (name.includes('norm')) return values.fill(1);
  if (/(o_proj|down_proj|bias)/.test(name)) return values;
  const draw = new PhiloxStream(0, 0x64656570, index);
  // Box–Muller, with the deviation of pretrain_word_problems.
  return values.map(
    () => 0.05 * Math.sqrt(-2 * Math.log(1 - draw.uniform())) * Math.cos(2 * Math.PI * draw.uniform()),
  );
}

const [command, first, second, third] = process.argv.slice(2);
if (command === 'check' && first) await check(first, Number(second ?? 2000));
else if (command === 'ship' && second) await ship(first, second);
else if (command === 'deepen' && third) await deepen(first, Number(second), third);
else console.error('expected: check MODEL [PROBLEMS], ship RUN DIRECTORY, or deepen MODEL LAYERS DIRECTORY');
