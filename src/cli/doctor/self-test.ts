/** A few seconds of scoring, generating and training on one device, against values stored when this was written. */
import { loadModel } from '../../api/model.js';
import { Tape } from '../../autograd/tape.js';
import { baseDirectory } from '../../models/base.js';
import { loadTrainableDecoder } from '../../models/load.js';
import { nll } from '../../objectives/nll.js';
import { type Device, type DeviceOptions, openDevice } from '../../runtime/device.js';
import { unverified } from '../../runtime/unverified-gpu.js';
import { hiddenStates, logprobsAt } from '../../sequences/forward.js';
import { AdamW } from '../../train/adamw.js';

/** A part that gave another value, in words; none where all is well. */
export interface SelfTest {
  readonly seconds: number;
  readonly wrong: readonly string[];
  /** Set on a kind of GPU that the kernels have never run on. */
  readonly doubt?: string | undefined;
}

/** The text that the embedded model scores, and continues after its last `=`. */
const TEXT = '12;-6;+7\n12-6=6\n6+7=';

export interface Stored {
  readonly logprob: number;
  readonly continuation: string;
  /** Losses of three steps of full training on the text. */
  readonly losses: readonly number[];
}

/** Expected values of the embedded model in f32. */
const STORED: Stored = { logprob: -160.199956, continuation: '13', losses: [8.431577, 7.283784, 5.110497] };

/** Relative. Instruction sets differ by 2e-6, GPUs add in another order again. */
const TOLERANCE = 5e-4;

export async function selfTest(
  name: string,
  options: DeviceOptions = {},
  stored: Stored = STORED,
): Promise<SelfTest> {
  const began = performance.now();
  using device = openDevice(name, options);
  const wrong = [...(await inference(device, stored)), ...(await training(device, stored))];
  return { seconds: (performance.now() - began) / 1000, wrong, doubt: unverified(device.info()) };
}

async function inference(device: Device, stored: Stored): Promise<string[]> {
  const ids = [...Buffer.from(TEXT)];
  using model = await loadModel(device, 'embedded', { dtype: 'f32' });
  const [score] = await model.score([ids]);
  const logprob = score!.logprobs.reduce((sum, value) => sum + value, 0);
  const [answers] = await model.generate([ids], {
    temperature: 0,
    maxNewTokens: stored.continuation.length,
  });
  const text = Buffer.from(answers![0]!.tokens).toString();
  return [
    ...compare('log-probability', logprob, stored.logprob),
    ...(text === stored.continuation
      ? []
      : [`generated ${JSON.stringify(text)}, stored ${stored.continuation}`]),
  ];
}

async function training(device: Device, stored: Stored): Promise<string[]> {
  const { decoder, parameters } = loadTrainableDecoder(device, baseDirectory('embedded'), { dtype: 'f32' });
  const optimizer = new AdamW(parameters, {
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
    weightDecay: 0,
    maxGradNorm: 1,
  });
  const ids = [...Buffer.from(TEXT)];
  const sequence = { ids, positions: ids.map((_, i) => i), branch: undefined, rowId: 0 };
  const rows = [ids.slice(1).map((token, row) => ({ row, token }))];
  const wrong: string[] = [];
  for (const [step, expected] of stored.losses.entries()) {
    parameters.zeroGrads();
    const tape = new Tape(device);
    const loss = device.scope(() =>
      tape.run(() => {
        const { logprobs } = logprobsAt(hiddenStates(decoder, {}, [sequence]), rows);
        return nll(logprobs, device.tensor(new Float32Array(ids.length - 1).fill(1 / (ids.length - 1))));
      }),
    );
    tape.backward([[loss, 1]]);
    await optimizer.step(1e-3);
    const [value] = await loss.readFloats();
    loss.dispose();
    wrong.push(...compare(`loss of step ${step + 1}`, value!, expected));
  }
  return wrong;
}

function compare(what: string, found: number, stored: number): string[] {
  // Written so that NaN differs too.
  return Math.abs(found - stored) <= TOLERANCE * Math.max(1, Math.abs(stored))
    ? []
    : [`${what} ${found.toFixed(6)}, stored ${stored}`];
}
