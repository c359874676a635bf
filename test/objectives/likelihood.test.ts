// Likelihood objectives through the tape, against torch's autograd in float64.
import { afterAll, describe, expect, it } from 'vitest';
import { bce, crossEntropy } from '../../src/objectives/likelihood.js';
import { nll } from '../../src/objectives/nll.js';
import { openTest } from '../ops/devices.js';
import { maxDifference } from '../ops/numbers.js';
import { differentiate, readGolden, sum } from '../ops/objective-cases.js';
import { throughTape, vector } from './through-tape.js';

const vectors = readGolden('vectors') as {
  prm_bce: { logits: number[]; labels: number[]; loss: number[]; grad: number[] };
  masked_sft: { logits: number[]; targets: number[]; mask: number[]; nll: number[]; loss: number[] };
};

const device = openTest();
afterAll(() => device.dispose());

describe('bce', () => {
  it('gives the golden loss and gradient of a step classifier, times the weight of the loss', async () => {
    const { logits, labels, loss, grad } = vectors.prm_bce;
    const weights = logits.map(() => 1 / logits.length);
    const found = await throughTape(
      device,
      { logits },
      (on) => bce(on.logits, vector(device, labels), vector(device, weights)),
      { seed: 2 },
    );
    expect(found.loss).toBeCloseTo(loss[0]!, 6);
    expect(
      maxDifference(
        found.gradients.logits!,
        grad.map((g) => 2 * g),
      ),
    ).toBeLessThan(1e-6);
    expect(found.statistics).toMatchObject({ accuracy: 1, rows: 3 });
  });
});

describe('crossEntropy', () => {
  it('is the masked mean of the golden token losses, with no gradient for masked rows', async () => {
    const { logits, targets, mask, loss } = vectors.masked_sft;
    const weights = mask.map((kept) => kept / sum(mask));
    const found = await throughTape(
      device,
      { logits },
      (on) => crossEntropy(on.logits, device.tensor(Int32Array.from(targets)), vector(device, weights)),
      { shapes: { logits: [4, 3] } },
    );
    expect(found.loss).toBeCloseTo(loss[0]!, 6);
    expect(found.gradients.logits!.slice(3, 6)).toEqual([0, 0, 0]);
    const reference = (x: number[]) =>
      sum(
        targets.map((target, i) => {
          const row = x.slice(3 * i, 3 * i + 3);
          return weights[i]! * (Math.log(sum(row.map(Math.exp))) - row[target]!);
        }),
      );
    expect(maxDifference(found.gradients.logits!, differentiate(reference, logits))).toBeLessThan(1e-6);
  });
});

describe('nll', () => {
  it('weights each token', async () => {
    const weights = [0.5, 0, 0.25];
    const found = await throughTape(device, { logprobs: [-1, -2, -4] }, (on) => ({
      loss: nll(on.logprobs, vector(device, weights)),
      statistics: { names: [], values: device.zeros([1]) },
    }));
    expect(found.loss).toBe(1.5);
    expect(maxDifference(found.gradients.logprobs!, [-0.5, 0, -0.25])).toBe(0);
  });
});
