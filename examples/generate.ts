/**
 * Samples after prompts, token by token, then how likely the model finds what it wrote.
 *
 *   node scripts/build.mjs --no-addon --bench     (once, in a clone: compiles the examples into build/ts)
 *   node build/ts/examples/generate.js DIRECTORY "5 17 3" "8 1"     (token ids of each prompt)
 */
import { loadModel, openDevice } from 'steptrain';

const [directory, ...texts] = process.argv.slice(2);
if (directory === undefined || texts.length === 0) throw new Error('usage: generate.js DIRECTORY "1 2 3" …');

const device = openDevice('cpu');
const model = await loadModel(device, directory, { dtype: 'f32' });
const prompts = texts.map((text) => text.trim().split(/\s+/).map(Number));
const options = { n: 2, maxNewTokens: 12, temperature: 0.7, topP: 0.9, seed: 1 };
for await (const { prompt, sample, token } of model.stream(prompts, options))
  console.log(`prompt ${prompt}, sample ${sample}: ${token}`);

for (const [prompt, samples] of (await model.generate(prompts, options)).entries()) {
  for (const { tokens, logprobs, finishReason } of samples) {
    const mean = logprobs.reduce((sum, logprob) => sum + logprob, 0) / logprobs.length;
    console.log(`prompt ${prompt}: ${tokens.join(' ')}; mean log-prob ${mean.toFixed(3)}, ${finishReason}`);
  }
}
model.dispose();
device.dispose();
