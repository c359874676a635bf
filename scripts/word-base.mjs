// What the word-problem models can do, and how they come into the package.
//   node scripts/word-base.mjs check MODEL [PROBLEMS]    scores by level, of 2,000 test problems each; MODEL as for --model
//   node scripts/word-base.mjs ship RUN assets/NAME      copies the model of a run, or its adapter, in bf16
import { copyFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadModel } from '../dist/api/model.js';
import { wordProblems } from '../dist/data/problems/generate.js';
import { writeJson } from '../dist/files/json-file.js';
import { baseDirectory } from '../dist/models/base.js';
import { saveDecoder } from '../dist/models/save.js';
import { openDevice } from '../dist/runtime/device.js';
import { loadTokenizer } from '../dist/tokenizer/load.js';
import { fromF32, toF32 } from '../dist/weights/convert.js';
import { openSafetensors } from '../dist/weights/safetensors.js';
import { writeSafetensors } from '../dist/weights/safetensors-writer.js';
import { solveWordProblems } from './solve-word-problems.mjs';

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
  await saveDecoder(decoder, directory, { dtype: 'bf16' });
  for (const file of FILES) copyFileSync(join(from, file), join(directory, file));
}

/** The adapter of a run, in bf16, on the base by its name; the tokenizer is the base's. */
async function shipJudge(run, directory) {
  const from = join(run, 'adapter');
  const json = (name) => JSON.parse(readFileSync(join(from, name), 'utf8'));
  const card = json('steptrain.json');
  mkdirSync(directory, { recursive: true });
  const file = openSafetensors(join(from, 'adapter_model.safetensors'));
  const sources = [...file.tensors].map(([name, { shape, dtype }]) => ({
    ...{ name, shape, dtype: 'BF16' },
    data: () => fromF32(toF32(file.read(name), dtype), 'BF16'),
  }));
  await writeSafetensors(join(directory, 'adapter_model.safetensors'), sources, { format: 'pt' });
  file.close();
  const config = { ...json('adapter_config.json'), base_model_name_or_path: card.base };
  await writeJson(join(directory, 'adapter_config.json'), config);
  await writeJson(join(directory, 'steptrain.json'), card);
}

const [command, first, second] = process.argv.slice(2);
if (command === 'check' && first) await check(first, Number(second ?? 2000));
else if (command === 'ship' && second)
  await (existsSync(join(first, 'adapter')) ? shipJudge : ship)(first, second);
else console.error('expected: check MODEL [PROBLEMS], or ship RUN DIRECTORY');
