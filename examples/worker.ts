/**
 * Scores sequences in worker threads, each with its own device.
 *
 *   node scripts/build.mjs --no-addon --bench     (once, in a clone: compiles the examples into build/ts)
 *   node build/ts/examples/worker.js DIRECTORY
 */
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { loadModel, openDevice } from 'steptrain';

interface Task {
  readonly directory: string;
  readonly ids: readonly number[];
}

if (isMainThread) {
  const [directory] = process.argv.slice(2);
  if (directory === undefined) throw new Error('usage: worker.js DIRECTORY');
  const tasks = [
    [5, 17, 3],
    [8, 1],
  ].map(
    (ids) =>
      new Promise<number>((resolve, reject) => {
        const worker = new Worker(new URL(import.meta.url), {
          workerData: { directory, ids } satisfies Task,
        });
        worker.once('message', resolve).once('error', reject);
      }),
  );
  for (const [i, sum] of (await Promise.all(tasks)).entries())
    console.log(`sequence ${i}: ${sum.toFixed(4)}`);
} else {
  const { directory, ids } = workerData as Task;
  const device = openDevice('cpu', { threads: 1 });
  const model = await loadModel(device, directory);
  const [score] = await model.score([ids]);
  parentPort?.postMessage(score?.logprobs.reduce((sum, logprob) => sum + logprob, 0));
  model.dispose();
  device.dispose();
}
