// How likely a model that corrects itself begins a reflection after held-out wrong steps and after the right ones in their places: the
// AUC of that probability within pairs and over all, which says more than how often it does.
//   node research/scripts/reflection-auc.mjs RUN slips.jsonl others.jsonl
// Files are of `real-solutions.mjs heldout`; research/s3c-gsm8k.md has results.
import { readFileSync } from 'node:fs';
import { heldOutStep } from '../../dist/corrections/evaluation/prefixes.js';
import { loadModel, openDevice } from '../../dist/entries/index.js';
import { rocAuc } from '../../dist/eval/statistics/metrics.js';

const [run, ...files] = process.argv.slice(2);
const device = openDevice('cpu');
const model = await loadModel(device, run);
const tokenizer = await model.tokenizer();
const [first] = tokenizer.encode('Wait, the last step is not right:', { continuation: true });
for (const file of files) {
  const steps = readFileSync(file, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map(JSON.parse)
    .flatMap((row) => heldOutStep(row) ?? []);
  const likely = { wrong: [], right: [] };
  for (const which of ['wrong', 'right'])
    for (let at = 0; at < steps.length; at += 32) {
      const ids = steps
        .slice(at, at + 32)
        .map((step) => [
          ...tokenizer.encode(`${step.problem}\n`),
          ...[...step.before, step[which]].flatMap((text) => [
            ...tokenizer.encode(`${text}\n`, { continuation: true }),
          ]),
          first,
        ]);
      for (const { logprobs } of await model.score(ids)) likely[which].push(logprobs.at(-1));
    }
  const auc = rocAuc(
    [...likely.wrong, ...likely.right],
    [...likely.wrong.map(() => 1), ...likely.right.map(() => 0)],
  );
  const higher = likely.wrong.filter((own, i) => own > likely.right[i]).length / steps.length;
  const mean = (list) => list.reduce((sum, own) => sum + Math.exp(own), 0) / list.length;
  console.log(
    JSON.stringify({
      file,
      steps: steps.length,
      auc,
      higher,
      wrong: mean(likely.wrong),
      right: mean(likely.right),
    }),
  );
}
model.dispose();
device.dispose();
