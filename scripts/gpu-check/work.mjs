// The workload of a StepAMC run, for bench/peers/ppo.py: the lengths of the sequences that end in each verdict of a
// rollout batch, and the settings that determine the amount of work.
//   node work.mjs RUN-DIRECTORY > work.json
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseRunConfig } from '../../dist/methods/config.js';
import { configuredTokenizer } from '../../dist/run/tokenizer.js';
import { verdictData } from '../../dist/train/verdict-data.js';

const directory = process.argv[2];
const path = join(directory, 'config.yaml');
const { config } = parseRunConfig(readFileSync(path, 'utf8'), { name: path });
const data = await verdictData(config, await configuredTokenizer(config.model), new AbortController().signal);
const { tailIds, template } = data.tokenizer;
const lengths = [];
for (const { solution } of data.sequences.train) {
  if (lengths.length >= config.ppo.rollout_batch) break;
  // Up to the step, the question, and the verdict's one token.
  for (const { at, label } of solution.verdicts) if (label !== null) lengths.push(at + tailIds.length + 1);
}
data.close();
const { ppo, lora, model } = config;
console.log(
  JSON.stringify({
    model: JSON.parse(readFileSync(join(model.base, 'config.json'), 'utf8')),
    dtype: model.dtype,
    rank: lora.r,
    alpha: lora.lora_alpha,
    lengths,
    words: [template.positiveIds[0], template.negativeIds[0]],
    iterations: ppo.max_iterations,
    epochs: ppo.num_ppo_epochs,
    micro_batch_tokens: ppo.micro_batch_tokens,
  }),
);
