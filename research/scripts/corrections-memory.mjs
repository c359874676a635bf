// Memory of making samples from 1,000 to 500,000 solutions, with a scripted model: node research/scripts/corrections-memory.mjs [count …]
// It must not grow with their number. Needs dist/.
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openSampleFile, SAMPLES } from '../../dist/corrections/file.js';
import { StepSampler } from '../../dist/corrections/sampler.js';
import { makeIntoFile } from '../../dist/corrections/stream.js';
import { plainTeacher } from '../../dist/corrections/teacher.js';
import { completeRunConfig } from '../../dist/methods/config.js';
import { byteTokenizer } from '../../dist/tokenizer/byte.js';

const [, , ...given] = process.argv;
const counts = given.length > 0 ? given.map(Number) : [1_000, 10_000, 100_000, 500_000];
const tokenizer = byteTokenizer();
const { corrections: settings } = completeRunConfig({
  method: 's3c',
  data: { source: 'word_problems' },
  corrections: {
    positions: 1,
    chunk: 512,
    sample: { n: 1 },
    validate: { k: 1, require_true_step_pass: false },
  },
});

/** Writes a wrong step, and never the answer. */
const source = {
  async sample(prompts, { promptIds = [] }) {
    return prompts.map((_, i) => {
      const tokens = tokenizer.encode(`${promptIds[i]}+1=0\n`);
      return [{ tokens, logprobs: new Float32Array(tokens.length), finishReason: 'stop' }];
    });
  },
  async publish() {},
  async close() {},
};

async function* solutions(count) {
  for (let number = 0; number < count; number++) {
    const steps = [`${number}+1=${number + 1}`, `The answer is: ${number + 1}`];
    const problem = `What is one more than ${number}?`;
    yield { number, problem, steps, answer: `${number + 1}`, record: { problem, steps: [] } };
  }
}

for (const count of counts) {
  const directory = await mkdtemp(join(tmpdir(), 'steptrain-memory-'));
  const file = await openSampleFile(directory, { count });
  const prompt = { tokens: (problem) => tokenizer.encode(`${problem}\n`), lead: '' };
  const sampler = new StepSampler({ source, tokenizer, prompt, separator: '\n', seed: 0, maxLength: 1000 });
  const tools = { sampler, teacher: plainTeacher(), settings, seed: 0, separator: '\n' };
  let peak = 0;
  const began = performance.now();
  await makeIntoFile(solutions(count), file, tools, {
    onProgress() {
      peak = Math.max(peak, process.memoryUsage().rss);
    },
  });
  const { size } = await stat(join(directory, SAMPLES));
  const samples = file.tally.get('samples');
  await file.close();
  await rm(directory, { recursive: true });
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  console.log(
    `${count} solutions, ${samples} samples, ${(size / 1e6).toFixed(1)} MB: peak ${(peak / 1e6).toFixed(0)} MB, ${seconds} s`,
  );
}
