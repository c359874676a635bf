/** node-llama-cpp: all rows as sequences of one context, evaluated greedily side by side, which it batches. See llama.py. */
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const require = createRequire(join(process.env.STEPTRAIN_NODE_LLAMA, 'package.json'));
const { getLlama } = await import(pathToFileURL(require.resolve('node-llama-cpp')).href);
const {
  model: modelPath,
  threads,
  batch,
  prompt,
  newTokens,
  vocabulary = 100_000,
} = JSON.parse(process.argv[2]);

const llama = await getLlama({ gpu: false, build: 'never', maxThreads: threads });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({
  sequences: batch,
  contextSize: prompt + newTokens + 1,
  batchSize: Math.min(2048, batch * prompt),
  threads,
  flashAttention: true,
});

/** When each token of each row came. */
const ends = [];
const began = performance.now();
await Promise.all(
  Array.from({ length: batch }, async (_, row) => {
    const ids = Array.from({ length: prompt }, (_, i) => 1 + ((row * 7919 + i * 104_729) % (vocabulary - 1)));
    let count = 0;
    for await (const _ of context.getSequence().evaluate(ids, { temperature: 0, yieldEogToken: true })) {
      ends[count] = performance.now();
      if (++count === newTokens) break;
    }
  }),
);
const seconds = (from, to) => (to - from) / 1000;
const [first] = ends;
console.log(
  JSON.stringify({ first: seconds(began, first), step: seconds(first, ends.at(-1)) / (ends.length - 1) }),
);
process.exit(0);
