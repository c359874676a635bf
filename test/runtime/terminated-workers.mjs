// Run by worker.test.ts in a process that does not load the addon itself: as many workers as it is told do, each terminated in
// the middle of a training step. Prints how many ended.
import { setTimeout } from 'node:timers/promises';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';

const [directory = workerData, count = 0] = process.argv.slice(2);

if (isMainThread) {
  let ended = 0;
  for (let i = 0; i < Number(count); i++) {
    const worker = new Worker(new URL(import.meta.url), { workerData: directory, argv: [] });
    worker.on('error', (error) => {
      console.error(error);
      process.exit(2);
    });
    await new Promise((resolve) => worker.once('message', resolve));
    await setTimeout(i % 7);
    await worker.terminate();
    ended++;
  }
  console.log(`ended ${ended}`);
} else {
  const { openDevice } = await import('../../dist/entries/index.js');
  const { headLogprobs, loadTrainableDecoder, nll, raggedBatch, Tape } = await import(
    '../../dist/entries/ops.js'
  );
  const device = openDevice('cpu');
  const { decoder, parameters } = loadTrainableDecoder(device, workerData, { dtype: 'f32' });
  const ids = Array.from({ length: 200 }, (_, t) => t);
  for (let step = 0; ; step++) {
    const batch = raggedBatch(device, [{ ids }, { ids }], decoder.config);
    const tape = new Tape(device);
    const loss = device.scope(() =>
      tape.run(() => {
        const targets = device.tensor(Int32Array.from([...ids, ...ids]));
        const { logprobs } = headLogprobs(decoder.forward(batch), decoder.head(), targets);
        return nll(logprobs, device.tensor(new Float32Array(400).fill(1 / 400)));
      }),
    );
    batch.dispose();
    tape.backward([[loss, 1]]);
    parentPort.postMessage(step);
    await loss.read();
    loss.dispose();
    parameters.zeroGrads();
  }
}
