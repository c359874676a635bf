// The long-lived process of scripts/soak.mjs: for every line on standard input one turn of training, loading, ragged generation and
// disposal through the API, answered by a line with what the process then holds.
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { loadModel, openDevice, train } from '../dist/entries/index.js';
import { uniform } from './killed-runs.mjs';

const REQUESTS = 240;
const WAVE = 24;
const [folder, recipes] = [process.argv[2], new Map(JSON.parse(process.argv[3]))];
setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc');
const random = uniform('long-lived');
const below = (n) => Math.floor(random.next().value * n);

const device = openDevice('cpu', { threads: 1 });
const kept = await loadModel(device, 'embedded');

/** Prompts of 1 to 150 tokens through one model, a twelfth of them given up in between. */
async function raggedRequests(model) {
  let tokens = 0;
  for (let begun = 0; begun < REQUESTS; begun += WAVE) {
    const signals = Array.from({ length: 3 }, () => new AbortController());
    const waves = signals.map(({ signal }, i) => {
      const prompts = Array.from({ length: WAVE / 3 }, () =>
        Array.from({ length: 1 + below(150) }, () => below(250)),
      );
      const generated = model.generate(prompts, {
        maxNewTokens: 1 + below(16),
        n: 1 + below(2),
        temperature: 1,
        ignoreEos: true,
        seed: begun + i,
        signal,
      });
      if (below(4) === 0) setTimeout(() => signals[i].abort(), below(10));
      return generated;
    });
    for (const samples of (await Promise.all(waves)).flat(2)) tokens += samples.tokens.length;
  }
  return tokens;
}

async function turn(name, index) {
  const output = join(folder, `api-${index}`);
  const { directory } = await train(JSON.parse(readFileSync(recipes.get(name), 'utf8')), { output });
  const model = await loadModel(device, directory);
  const tokens = (await raggedRequests(model)) + (await raggedRequests(kept));
  await model.score([[1, 2, 3], Array.from({ length: 200 }, (_, i) => i)]);
  model.dispose();
  rmSync(directory, { recursive: true, force: true });
  return tokens;
}

let index = 0;
for await (const name of createInterface({ input: process.stdin })) {
  const tokens = await turn(name, index++);
  await device.synchronize();
  // Twice, with a pause: what finalizers let go is counted as gone.
  for (let i = 0; i < 2; i++) {
    collectGarbage();
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const { heapUsed, external } = process.memoryUsage();
  const { tensors, liveBytes, reservedBytes } = device.stats();
  const descriptors = readdirSync('/proc/self/fd').length;
  const line = {
    tokens,
    heap: heapUsed,
    external,
    tensors,
    live: liveBytes,
    reserved: reservedBytes,
    descriptors,
  };
  process.stdout.write(`${JSON.stringify(line)}\n`);
}
kept.dispose();
device.dispose();
