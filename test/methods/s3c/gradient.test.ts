// The mask in the loss: rows of masked tokens get exactly no gradient, and what they hold still counts as context.
import { afterAll, describe, expect, test } from 'vitest';
import { correctionTokenizer } from '../../../src/methods/s3c/sequences.js';
import { loadDecoder } from '../../../src/models/load.js';
import { readWeight } from '../../../src/models/save.js';
import { crossEntropy } from '../../../src/objectives/likelihood.js';
import type { Step, StepKind } from '../../../src/records/record.js';
import { hiddenStates, scoreRows } from '../../../src/sequences/forward.js';
import { LazySequence } from '../../../src/sequences/packed.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { goldenDirectory } from '../../models/golden.js';
import { throughTape, vector } from '../../objectives/through-tape.js';
import { openTest } from '../../ops/devices.js';

const device = openTest();
afterAll(() => device.dispose());

const step = (text: string, kind: StepKind = 'normal'): Step => ({ text, kind, label: null });
const solution = (wrong: string) => ({
  problem: '2+3+4',
  steps: [
    step('S1: 2+3=5'),
    step(`S2: ${wrong}`, 'wrong'),
    step('not 8', 'reflection'),
    step('S2: 5+4=9', 'improvement'),
    step('Answer: 9'),
  ],
});
const format = { template: '{problem}\n', reflection: 'Wait: {text}', improvement: 'So: {text}' };
const sequenceOf = (wrong: string, mask: Parameters<typeof correctionTokenizer>[1]['mask'] = {}) =>
  correctionTokenizer(byteTokenizer(), { format, mask })(solution(wrong));

/** The loss over the whole vocabulary, and its gradient for the logits of each row. */
async function lossOf(sequence: ReturnType<typeof sequenceOf>) {
  const decoder = await loadDecoder(device, goldenDirectory('qwen2'), { dtype: 'f32' });
  const training = new LazySequence(sequence, 0);
  const head = await readWeight(decoder, 'model.embed_tokens.weight');
  const { hiddenSize, vocabSize } = decoder.config;
  const states = device.scope(() => hiddenStates(decoder, {}, [training]).hidden);
  const hidden = await states.readFloats();
  states.dispose();
  const rows = sequence.ids.length - 1;
  const logits = Array.from({ length: rows * vocabSize }, (_, i) => {
    const [row, token] = [Math.floor(i / vocabSize), i % vocabSize];
    let sum = 0;
    for (let k = 0; k < hiddenSize; k++) sum += hidden[row * hiddenSize + k]! * head[token * hiddenSize + k]!;
    return sum;
  });
  const total = sequence.weights.subarray(1).reduce((sum, weight) => sum + weight, 0);
  const weights = Array.from(sequence.weights.subarray(1), (weight) => weight / total);
  const { loss, gradients } = await throughTape(
    device,
    { logits },
    (on) =>
      crossEntropy(
        on.logits,
        device.tensor(Int32Array.from(sequence.ids.subarray(1))),
        vector(device, weights),
      ),
    { shapes: { logits: [rows, vocabSize] } },
  );
  const scores = device.scope(() => scoreRows(decoder, {}, [{ sequence: training, rows: training.targets }]));
  const logprobs = await scores.logprobs.readFloats();
  for (const tensor of Object.values(scores)) tensor.dispose();
  const trained = training.targets.reduce((sum, { weight }, i) => sum - weight * logprobs[i]!, 0) / total;
  decoder.dispose();
  const isZero = (row: number) =>
    gradients.logits!.slice(row * vocabSize, (row + 1) * vocabSize).every((value) => value === 0);
  return { loss, trained, zero: Array.from({ length: rows }, (_, row) => isZero(row)) };
}

/** Which tokens are masked, as text with a dot for each that is learned. */
function masked({ ids }: ReturnType<typeof sequenceOf>, zero: readonly boolean[]): string {
  const text = byteTokenizer().decode(ids.subarray(1));
  return Array.from(text.slice(0, zero.length), (letter, i) => (zero[i] ? letter : '.')).join('');
}

describe('gradients of the logits', () => {
  test.each([
    ['the problem, the wrong step and its separator', {}, /^\+3\+4\n\.{10}S2: 5\+4=8\n\.+$/],
    ['the separator is learned', { mask_separator: false }, /^\+3\+4\n\.{10}S2: 5\+4=8\.+$/],
    ['the header is learned', { header: 'S\\d: ' }, /^\+3\+4\n\.{14}5\+4=8\n\.+$/],
    ['nothing but the problem', { mask: 'none' }, /^\+3\+4\n\.+$/],
    ['all before the reflection', { mask: 'wrong_step_and_prompt' }, /^\+3\+4\nS1: 2\+3=5\nS2: 5\+4=8\n\.+$/],
    ['a weight above 0 masks nothing', { wrong_step_weight: 0.5 }, /^\+3\+4\n\.+$/],
  ] as const)('are exactly zero for what is masked: %s', async (_, mask, expected) => {
    const sequence = sequenceOf('5+4=8', mask);
    const { loss, trained, zero } = await lossOf(sequence);
    expect(masked(sequence, zero)).toMatch(expected);
    // The first token of the reflection and the end of the text are among those that are learned.
    expect(zero.at(-1)).toBe(false);
    expect(trained).toBeCloseTo(loss, 4);
  });

  test('a changed wrong step changes the loss, though it is no target', async () => {
    const [one, other] = [await lossOf(sequenceOf('5+4=8')), await lossOf(sequenceOf('5+4=7'))];
    expect(Math.abs(one.trained - other.trained)).toBeGreaterThan(1e-5);
  });
});

test('each sample has the same weight where the loss is normalised by example', () => {
  for (const wrong of ['5+4=8', '5+4 is about 8 or so']) {
    const { weights } = sequenceOf(wrong, { normalise: 'example', wrong_step_weight: 0.5 });
    expect(weights.reduce((sum, weight) => sum + weight, 0)).toBeCloseTo(1, 5);
  }
});
