// Decoders against transformers, PEFT and torch in float64: values, gradients, optimizer steps.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import type { TrainableParameters } from '../../src/autograd/parameters.js';
import { Tape } from '../../src/autograd/tape.js';
import { loadAdapter } from '../../src/models/adapter.js';
import { raggedBatch } from '../../src/models/batch.js';
import type { Decoder, Role } from '../../src/models/decoder.js';
import { loadDecoder, loadTrainableDecoder } from '../../src/models/load.js';
import { nll } from '../../src/objectives/nll.js';
import { headLogits } from '../../src/ops/head.js';
import type { Device } from '../../src/runtime/device.js';
import { scoreRows } from '../../src/sequences/forward.js';
import { AdamW } from '../../src/train/adamw.js';
import { EMULATED, roundAlike } from '../cuda/gpu.js';
import { isas, openTest } from '../ops/devices.js';
import { maxDifference } from '../ops/numbers.js';
import { DECODERS, type Expected, expectedOf, expectedTensors, goldenDirectory } from './golden.js';

/** The sequences with a target at every position from the prompt's length on. */
function completions({ sequences, prompt_lengths }: Expected) {
  return sequences.map((ids, i) => {
    const prompt = prompt_lengths[i] as number;
    const rows = ids.slice(prompt).map((token, j) => ({ row: prompt + j - 1, token }));
    return { sequence: { ids, positions: ids.map((_, t) => t), branch: undefined, rowId: i }, rows };
  });
}

type Item = ReturnType<typeof completions>[number];

/** Completion-mean loss, with gradients added into the parameters; `groups` of sequences are computed one by one. */
async function backward(decoder: Decoder, role: Role, groups: readonly (readonly Item[])[]): Promise<number> {
  const { device } = decoder;
  const count = groups.flat().reduce((sum, { rows }) => sum + rows.length, 0);
  let total = 0;
  for (const items of groups) {
    const tape = new Tape(device);
    const rows = items.reduce((sum, item) => sum + item.rows.length, 0);
    const loss = device.scope(() =>
      tape.run(() => {
        const { logprobs } = scoreRows(decoder, role, items);
        return nll(logprobs, device.tensor(new Float32Array(rows).fill(1 / count)));
      }),
    );
    tape.backward([[loss, 1]]);
    tape.dispose();
    total += (await loss.readFloats())[0] as number;
    loss.dispose();
  }
  return total;
}

async function gradientsOf(parameters: TrainableParameters): Promise<Map<string, Float32Array>> {
  const gradients = new Map<string, Float32Array>();
  for (const { name, grad } of parameters.list) gradients.set(name, await grad!.readFloats());
  return gradients;
}

/** The rule of the golden files' README: 1e-3 of the tensor's largest gradient plus 1e-7 of the model's. */
function expectGradients(
  actual: ReadonlyMap<string, Float32Array>,
  expected: ReadonlyMap<string, Float32Array>,
  prefix: string,
): void {
  const wanted = [...expected].filter(([name]) => name.startsWith(prefix));
  expect(wanted.length).toBe(actual.size);
  const largest = (values: Float32Array) =>
    values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const overall = Math.max(...wanted.map(([, values]) => largest(values)));
  for (const [name, values] of wanted) {
    const found = actual.get(name.slice(prefix.length).replace('.default.', '.')) as Float32Array;
    expect(found, name).toBeDefined();
    expect(maxDifference(found, values), name).toBeLessThanOrEqual(1e-3 * largest(values) + 1e-7 * overall);
  }
}

const norm = (values: Float32Array) => Math.sqrt(values.reduce((sum, value) => sum + value ** 2, 0));

/** Tokens of the story; fewer on the emulator, which is slow. */
const BEGINNING = 16;

describe.each(isas)('%s', (isa) => {
  let device: Device;
  beforeAll(() => {
    device = openTest(isa);
  });
  afterAll(() => device.dispose());

  describe.each(DECODERS)('%s', (name) => {
    const golden = expectedOf(name);
    const tensors = expectedTensors(name);
    const directory = goldenDirectory(name);
    const items = completions(golden);

    test('logits', async () => {
      const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
      const batch = raggedBatch(
        device,
        golden.sequences.map((ids) => ({ ids })),
        decoder.config,
      );
      const logits = device.scope(() => headLogits(decoder.forward(batch), decoder.head()));
      const values = await logits.readFloats();
      const vocabulary = decoder.config.vocabSize;
      golden.sequences.forEach((ids, i) => {
        const begin = (batch.offsets[i] as number) * vocabulary;
        const found = values.subarray(begin, begin + ids.length * vocabulary);
        expect(maxDifference(found, tensors.get(`logits.${i}`)!)).toBeLessThan(1e-4);
      });
      logits.dispose();
      batch.dispose();
      decoder.dispose();
    });

    test('scores: log-probabilities and entropies, with and without the adapter', async () => {
      const model = await loadModel(device, directory, { dtype: 'f32' });
      const scores = await model.score(golden.sequences);
      scores.forEach((score, i) => {
        expect(maxDifference(score.logprobs, tensors.get(`logprobs.${i}`)!)).toBeLessThan(1e-4);
        expect(maxDifference(score.entropy, tensors.get(`entropy.${i}`)!)).toBeLessThan(1e-4);
      });
      model.dispose();
      const adapted = await loadModel(device, directory, { dtype: 'f32', adapter: `${directory}/adapter` });
      const adaptedScores = await adapted.score(golden.sequences);
      adaptedScores.forEach((score, i) => {
        expect(maxDifference(score.logprobs, tensors.get(`lora.logprobs.${i}`)!)).toBeLessThan(1e-4);
      });
      adapted.dispose();
    });

    test('bf16 logits are within twice the error of a naive bf16 run', async () => {
      const model = await loadModel(device, directory, { dtype: 'bf16' });
      const scores = await model.score(golden.sequences);
      const bound = 2 * golden.naive_bf16.logprob_max_abs_error;
      scores.forEach((score, i) => {
        expect(maxDifference(score.logprobs, tensors.get(`logprobs.${i}`)!)).toBeLessThan(bound);
      });
      model.dispose();
    });

    test('a sequence has the same bits alone and in a batch', async () => {
      const model = await loadModel(device, directory, { dtype: 'bf16' });
      const together = await model.score(golden.sequences);
      const tokens = golden.sequences.reduce((sum, ids) => sum + ids.length, 0);
      const bound = 2 * golden.naive_bf16.logprob_max_abs_error;
      for (const [i, ids] of golden.sequences.entries()) {
        const [alone] = await model.score([ids]);
        if (roundAlike(device, ids.length, tokens)) expect(alone).toEqual(together[i]);
        else expect(maxDifference(alone!.logprobs, together[i]!.logprobs)).toBeLessThan(bound);
      }
      model.dispose();
    });

    test('gradients of every parameter', async () => {
      const { decoder, parameters } = loadTrainableDecoder(device, directory, { dtype: 'f32' });
      const loss = await backward(decoder, {}, [items]);
      expect(loss).toBeCloseTo(golden.sft_loss_completion_mean, 4);
      expectGradients(await gradientsOf(parameters), tensors, 'grad.');
      parameters.dispose();
      decoder.dispose();
    });

    test('accumulation equals one batch, and recomputation changes no bit', async () => {
      const { decoder, parameters } = loadTrainableDecoder(device, directory, { dtype: 'f32' });
      await backward(decoder, {}, [items]);
      const whole = await gradientsOf(parameters);
      parameters.zeroGrads();
      await backward(
        decoder,
        {},
        items.map((item) => [item]),
      );
      const parts = await gradientsOf(parameters);
      for (const [parameter, values] of whole) {
        const scale = values.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-6);
        expect(maxDifference(parts.get(parameter)!, values), parameter).toBeLessThan(1e-4 * scale + 1e-7);
      }
      const again = loadTrainableDecoder(device, directory, { dtype: 'f32', gradientCheckpointing: true });
      await backward(again.decoder, {}, [items]);
      expect(await gradientsOf(again.parameters)).toEqual(whole);
      for (const owned of [parameters, decoder, again.parameters, again.decoder]) owned.dispose();
    });

    test('gradients and five steps of the adapter', async () => {
      const settings = golden.lora_adamw as {
        lr: number;
        betas: [number, number];
        eps: number;
        loss: number[];
      };
      const decoder = await loadDecoder(device, directory, { dtype: 'f32' });
      const adapter = loadAdapter(device, decoder.config, `${directory}/adapter`, { trainable: true });
      const parameters = adapter.trainable!;
      const optimizer = new AdamW(parameters, {
        beta1: settings.betas[0],
        beta2: settings.betas[1],
        epsilon: settings.eps,
        weightDecay: 0,
        maxGradNorm: 0,
      });
      for (const [step, expected] of settings.loss.entries()) {
        parameters.zeroGrads();
        const loss = await backward(decoder, { adapter }, [items]);
        expect(Math.abs(loss - expected)).toBeLessThan(1e-4);
        if (step === 0) expectGradients(await gradientsOf(parameters), tensors, 'lora.grad.');
        await optimizer.step(settings.lr);
      }
      optimizer.dispose();
      adapter.dispose();
      decoder.dispose();
    });

    test('five steps of full training with clipping and decay', async () => {
      const settings = golden.full_adamw as {
        lr: number;
        betas: [number, number];
        eps: number;
        weight_decay: number;
        max_grad_norm: number;
        loss_and_grad_norm: [number, number][];
      };
      const { decoder, parameters } = loadTrainableDecoder(device, directory, { dtype: 'f32' });
      const optimizer = new AdamW(parameters, {
        beta1: settings.betas[0],
        beta2: settings.betas[1],
        epsilon: settings.eps,
        weightDecay: settings.weight_decay,
        maxGradNorm: settings.max_grad_norm,
      });
      for (const [expectedLoss, expectedNorm] of settings.loss_and_grad_norm) {
        parameters.zeroGrads();
        const loss = await backward(decoder, {}, [items]);
        expect(Math.abs(loss - expectedLoss)).toBeLessThan(1e-4);
        const { gradNorm } = await optimizer.step(settings.lr);
        expect(Math.abs(gradNorm - expectedNorm)).toBeLessThan(1e-4);
      }
      optimizer.dispose();
      parameters.dispose();
      decoder.dispose();
    });

    test('bf16 gradients are within twice the error of a naive bf16 run', async () => {
      const { decoder, parameters } = loadTrainableDecoder(device, directory, { dtype: 'bf16' });
      await backward(decoder, {}, [items]);
      const found = await gradientsOf(parameters);
      const errors = golden.naive_bf16.grad_relative_error;
      for (const [parameter, naive] of Object.entries(errors)) {
        const reference = tensors.get(`grad.${parameter}`)!;
        const difference = norm(found.get(parameter)!.map((value, i) => value - reference[i]!));
        // A gradient that is zero except for rounding (opt's k_proj.bias) has no digits to compare: its
        // noise is less than that of the weight beside it.
        const weight = naive > 1 ? parameter.replace(/bias$/, 'weight') : parameter;
        const bound = 2 * errors[weight]! * norm(tensors.get(`grad.${weight}`)!);
        expect(difference, parameter).toBeLessThan(bound);
      }
      parameters.dispose();
      decoder.dispose();
    });
  });

  test('stories260k writes the golden story greedily from full forwards', async () => {
    const golden = JSON.parse(JSON.stringify(expectedOf('stories260k'))) as { greedy: number[] };
    const decoder = await loadDecoder(device, goldenDirectory('stories260k'), { dtype: 'f32' });
    const ids = [golden.greedy[0] as number];
    const length = device.info().description === EMULATED ? BEGINNING : golden.greedy.length;
    while (ids.length < length) {
      const item = {
        sequence: { ids, positions: ids.map((_, t) => t), branch: undefined, rowId: 0 },
        rows: [{ row: ids.length - 1, token: 0 }],
      };
      const scores = device.scope(() => scoreRows(decoder, {}, [item]));
      ids.push((await scores.argmax.read())[0] as number);
      for (const tensor of Object.values(scores)) tensor.dispose();
    }
    expect(ids).toEqual(golden.greedy.slice(0, length));
    decoder.dispose();
  });
});
