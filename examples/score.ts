/**
 * Log-probability of each token of each sequence under a model.
 *
 *   node scripts/build.mjs --no-addon --bench     (once, in a clone: compiles the examples into build/ts)
 *   node build/ts/examples/score.js DIRECTORY "5 17 3" "8 1"     (token ids of each sequence)
 */
import { loadModel, openDevice } from 'steptrain';

const [directory, ...texts] = process.argv.slice(2);
if (directory === undefined || texts.length === 0) throw new Error('usage: score.js DIRECTORY "1 2 3" …');

const device = openDevice('cpu');
const model = await loadModel(device, directory, { dtype: 'f32' });
const sequences = texts.map((text) => text.trim().split(/\s+/).map(Number));
for (const [i, { logprobs, entropy }] of (await model.score(sequences)).entries()) {
  const mean = (values: Float32Array) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const each = Array.from(logprobs, (logprob) => logprob.toFixed(3)).join(' ');
  console.log(
    `sequence ${i}: ${each}; perplexity ${Math.exp(-mean(logprobs)).toFixed(2)}, entropy ${mean(entropy).toFixed(3)}`,
  );
}
model.dispose();
device.dispose();
