/**
 * Trains a small verdict model, judges a solution step by step, and evaluates the model on labelled solutions.
 *
 *   node scripts/build.mjs --no-addon --bench     (once, in a clone: compiles the examples into build/ts)
 *   node build/ts/examples/judge.js DIRECTORY     (a new directory for the run)
 */
import {
  evaluate,
  formatEvalTable,
  judgeSteps,
  loadModel,
  openDevice,
  type StepRecord,
  train,
} from 'steptrain';

const [output] = process.argv.slice(2);
if (output === undefined) throw new Error('usage: judge.js DIRECTORY');

const { directory } = await train(
  {
    method: 'sft',
    lora: { r: 4 },
    data: { source: 'arithmetic', arithmetic: { samples: 60 }, max_length: 200 },
    sft: { max_steps: 3 },
    run: { device: 'cpu' },
  },
  {
    output,
    onStep: ({ kind, stage, stageStep, stageSteps, metrics }) => {
      if (kind === 'step')
        console.log(`${stage} ${stageStep}/${stageSteps}: loss ${metrics.loss?.toFixed(3)}`);
    },
  },
);

// The adapter carries its base, tokenizer, prompt and verdict words.
const device = openDevice('cpu');
const model = await loadModel(device, directory);
for (const { step, probability, verdict } of await judgeSteps(model, '12 + 7 - 3', ['12+7=19', '19-3=15']))
  console.log(`${step}: ${verdict}, right with probability ${probability?.toFixed(3)}`);

const records: StepRecord[] = [
  {
    problem: '12 + 7 - 3',
    steps: [
      { text: '12+7=19', label: 1, kind: 'normal' },
      { text: '19-3=15', label: 0, kind: 'normal' },
    ],
  },
];
console.log(formatEvalTable(await evaluate(model, records), { boxed: false }));
model.dispose();
device.dispose();
