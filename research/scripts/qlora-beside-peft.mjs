// A QLoRA adapter of five steps (model.quantize: nf4) in PEFT, on the base that bitsandbytes quantises: log-probabilities beside ours.
//
//   STEPTRAIN_PYTHON=~/venv/bin/python node research/scripts/qlora-beside-peft.mjs MODEL
//
// MODEL is a model directory with weights in floats. The Python needs torch, transformers, peft and bitsandbytes (0.46 or newer, for
// its CPU kernels). Exits with 1 where log-probabilities are further apart than qlora_in_peft.py bounds them.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadModel, loadTokenizer, openDevice } from '../../dist/entries/index.js';

const [base] = process.argv.slice(2);
const python = process.env.STEPTRAIN_PYTHON ?? 'python3';
if (base === undefined) {
  console.error('name a model directory: node research/scripts/qlora-beside-peft.mjs MODEL');
  process.exit(1);
}
const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'qlora-'));
const run = join(folder, 'run');

function must(command, args) {
  const { status } = spawnSync(command, args, { stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
}

const settings = {
  'model.base': base,
  'model.quantize': 'nf4',
  'lora.r': 8,
  'lora.lora_alpha': 16,
  'data.arithmetic.samples': 200,
  'data.max_length': 256,
  'sft.max_steps': 5,
  'sft.tokens_per_step': 512,
  'eval.max_samples': 10,
};
try {
  const set = Object.entries(settings).flatMap(([key, value]) => ['--set', `${key}=${value}`]);
  must(process.execPath, [here('../../dist/cli/main.js'), 'run', 'quickstart_sft', '--output', run, ...set]);
  const saved = join(folder, 'bitsandbytes');
  must(python, [here('qlora_in_peft.py'), 'save', base, saved]);
  const adapter = join(run, 'adapter');
  const texts = [
    'What is 17 + 25? Let us add the tens first: 10 + 20 = 30.',
    'The capital of France is Paris.',
  ];
  const device = openDevice('cpu');
  const tokenizer = await loadTokenizer(base);
  const ids = texts.map((text) => [...tokenizer.encode(text)]);
  const scored = async (name, options) => {
    const model = await loadModel(device, name, { dtype: 'f32', ...options });
    const scores = await model.score(ids);
    model.dispose();
    return scores.map(({ logprobs }) => [...logprobs]);
  };
  const scores = {
    ids,
    made: await scored(base, { quantize: 'nf4', adapter }),
    kept: await scored(saved, { adapter }),
    base: await scored(saved),
  };
  device.dispose();
  writeFileSync(join(folder, 'scores.json'), JSON.stringify(scores));
  must(python, [here('qlora_in_peft.py'), 'compare', saved, adapter, join(folder, 'scores.json')]);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
