/**
 * A custom training step: a tape around the forward, an objective, an optimizer.
 *
 *   node scripts/build.mjs --no-addon --bench     (once, in a clone: compiles the examples into build/ts)
 *   node build/ts/examples/training-step.js DIRECTORY     (a Hugging Face model directory)
 */
import { openDevice } from 'steptrain';
import { gatherRows, headLogprobs, loadTrainableDecoder, nll, raggedBatch, Tape } from 'steptrain/ops';
import { AdamW } from 'steptrain/train';

const [directory] = process.argv.slice(2);
if (directory === undefined) throw new Error('usage: training-step.js DIRECTORY');

const device = openDevice('cpu');
const { decoder, parameters } = loadTrainableDecoder(device, directory, { dtype: 'f32' });
const optimizer = new AdamW(parameters, {
  beta1: 0.9,
  beta2: 0.999,
  epsilon: 1e-8,
  weightDecay: 0,
  maxGradNorm: 1,
});

// Two sequences in one ragged batch; only the tokens after the first four of each are learned.
const sequences = [
  [12, 7, 31, 5, 9, 2, 44],
  [3, 18, 6, 21, 15, 8],
];
const prompt = 4;
for (let step = 1; step <= 5; step++) {
  const tape = new Tape(device);
  const loss = device.scope(() => {
    const batch = raggedBatch(
      device,
      sequences.map((ids) => ({ ids })),
      decoder.config,
    );
    // The row before a token predicts it.
    const learned = sequences.flatMap((ids, s) =>
      ids.slice(prompt).map((token, i) => ({ row: (batch.offsets[s] as number) + prompt + i - 1, token })),
    );
    const targets = device.tensor(Int32Array.from(learned, ({ token }) => token));
    const weights = device.tensor(new Float32Array(learned.length).fill(1 / learned.length));
    const value = tape.run(() => {
      const rows = gatherRows(
        decoder.forward(batch),
        device.tensor(Int32Array.from(learned, ({ row }) => row)),
      );
      return nll(headLogprobs(rows, decoder.head(), targets).logprobs, weights);
    });
    batch.dispose();
    return value;
  });
  parameters.zeroGrads();
  tape.backward([[loss, 1]]);
  const { gradNorm } = await optimizer.step(1e-2);
  const [value] = await loss.readFloats();
  console.log(`step ${step}: loss ${value?.toFixed(4)}, gradient norm ${gradNorm.toFixed(4)}`);
  loss.dispose();
}
device.dispose();
