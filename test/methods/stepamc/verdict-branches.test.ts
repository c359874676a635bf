// All verdicts of a solution in one pass, against one sequence per verdict: log-probs, gradients, rollouts.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Tape } from '../../../src/autograd/tape.js';
import { arithmeticRecords } from '../../../src/data/arithmetic.js';
import { inMemory } from '../../../src/data/dataset.js';
import { verdictTokenizer } from '../../../src/data/verdict.js';
import type { StepAmcRoles } from '../../../src/methods/stepamc/roles.js';
import { verdictRollouts } from '../../../src/methods/stepamc/rollout.js';
import { baseDirectory } from '../../../src/models/base.js';
import { nll } from '../../../src/objectives/nll.js';
import { type ScoredRows, scoreRows } from '../../../src/sequences/forward.js';
import { type VerdictSequence, verdictSequence } from '../../../src/sequences/sequence.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import type { RolloutBatch } from '../../../src/train/policy/records.js';
import { f32Bound, openTest } from '../../ops/devices.js';
import { embeddedRoles } from './embedded-roles.js';

const device = openTest();
let roles: StepAmcRoles;
beforeAll(async () => {
  roles = await embeddedRoles(device);
  // B starts at zero, and an adapter without effect would hide errors.
  const { values } = roles.policyParameters;
  values.write((await values.readFloats()).map((value, i) => value + 0.02 * Math.sin(i)));
});
afterAll(() => {
  roles.dispose();
  device.dispose();
});

const records = [
  ...arithmeticRecords({
    samples: 6,
    steps: 5,
    max_operand: 20,
    max_value: 99,
    error_rate: 0.5,
    carried_error: 'own',
    seed: 5,
  }),
];

describe.each([
  ['words of one token', { pos_word: '1', neg_word: '0' }],
  ['words of several tokens', { pos_word: 'yes', neg_word: 'no' }],
])('%s', (_, words) => {
  const tokenizer = verdictTokenizer({ template: 'compact', ...words }, byteTokenizer());
  const sequences = records.map((record, i) => verdictSequence(tokenizer.solution(record), tokenizer, i));
  const solutions = inMemory(sequences);

  test('smoothed labels give the other word its share at the rows that predict it', () => {
    const [record] = records;
    const plain = sequences[0] as VerdictSequence;
    const solution = tokenizer.solution(record as (typeof records)[number]);
    const smoothed = verdictSequence(solution, tokenizer, 0, { weigh: (label) => 1 + label, smoothing: 0.1 });
    const expected = plain.verdicts.flatMap(({ label, positive, negative }) => {
      const [right, other] = label === 1 ? [positive, negative] : [negative, positive];
      const weight = 1 + (label as number);
      return [
        ...right.map((row) => ({ ...row, weight: weight * 0.9 })),
        ...other.map((row) => ({ ...row, weight: weight * 0.1 })),
      ];
    });
    expect(expected.some(({ weight }) => weight < 0.2)).toBe(true);
    expect(smoothed.targets).toEqual(expected);
  });

  /** Each verdict as a sequence of its own, with the rows of its right word. */
  const separate = (sequence: VerdictSequence): ScoredRows[] =>
    sequence.solution.verdicts.map(({ at, label }) => {
      const { positiveIds, negativeIds } = tokenizer.template;
      const word = label === 1 ? positiveIds : negativeIds;
      const before = [...sequence.solution.trunk.ids.slice(0, at), ...tokenizer.tailIds];
      const ids = [...before, ...word.slice(0, -1)];
      return {
        sequence: { ids, positions: ids.map((__, i) => i), branch: undefined, rowId: 0 },
        rows: word.map((token, k) => ({ row: before.length - 1 + k, token })),
      };
    });
  const together = (sequence: VerdictSequence): ScoredRows => ({ sequence, rows: sequence.targets });

  async function learn(items: readonly ScoredRows[]) {
    roles.policyParameters.zeroGrads();
    const tape = new Tape(device);
    const { loss, logprobs } = device.scope(() =>
      tape.run(() => {
        const scores = scoreRows(roles.decoder, roles.policy, items);
        const weights = new Float32Array(scores.logprobs.size).fill(1 / scores.logprobs.size);
        return { loss: nll(scores.logprobs, device.tensor(weights)), logprobs: scores.logprobs };
      }),
    );
    tape.backward([[loss, 1]]);
    const found = {
      logprobs: Array.from(await logprobs.readFloats()),
      gradients: await roles.policyParameters.grads.readFloats(),
    };
    loss.dispose();
    logprobs.dispose();
    return found;
  }

  test('log-probs and gradients equal those of separate sequences', async () => {
    const one = await learn(sequences.map(together));
    const many = await learn(sequences.flatMap(separate));
    expect(one.logprobs.length).toBe(many.logprobs.length);
    for (const [i, logprob] of one.logprobs.entries())
      expect(Math.abs(logprob - (many.logprobs[i] as number))).toBeLessThan(1e-4);
    const norm = Math.hypot(...many.gradients);
    const difference = Math.hypot(...one.gradients.map((value, i) => value - (many.gradients[i] as number)));
    expect(norm).toBeGreaterThan(0.1);
    expect(difference / norm).toBeLessThan(1e-4);
    // The shared trunk is computed once.
    const tokens = (items: readonly ScoredRows[]) =>
      items.reduce((sum, { sequence }) => sum + sequence.ids.length, 0);
    expect(tokens(sequences.map(together))).toBeLessThan(0.6 * tokens(sequences.flatMap(separate)));
  });

  const rollOut = (items: readonly number[], more: object = {}, batch: Partial<RolloutBatch> = {}) =>
    verdictRollouts({
      roles,
      sequences: solutions,
      template: tokenizer.template,
      tailIds: tokenizer.tailIds,
      settings: { rollout: 'sample', steps: 'labelled', temperature: 1, reference: 'base' },
      microBatchTokens: 512,
      seed: 11,
      ...more,
    }).rollOut({ items, iteration: 0, signal: new AbortController().signal, ...batch });

  test('a rollout does not depend on what else is in the batch', async () => {
    const all = [0, 1, 2, 3, 4, 5];
    const whole = await rollOut(all);
    const cut = await rollOut(all, { microBatchTokens: 64 });
    expect(cut).toEqual(whole);
    const alone = await rollOut([4]);
    expect(alone).toEqual(whole?.filter(({ item }) => item === 4));
    const later = await rollOut(all, {}, { iteration: 1 });
    expect(later?.map(({ answers }) => answers[0]?.tokens)).not.toEqual(
      whole?.map(({ answers }) => answers[0]?.tokens),
    );
  });

  test('sampled answers are words, or end with the token that can no longer become one', async () => {
    const { positiveIds, negativeIds } = tokenizer.template;
    const found = await rollOut([0, 1, 2, 3, 4, 5]);
    for (const { answers } of found ?? []) {
      const [{ tokens, verdict, oldLogprobs, samplerLogprobs }] = answers as [(typeof answers)[number]];
      const word = verdict === 1 ? positiveIds : verdict === 0 ? negativeIds : undefined;
      if (word) expect(tokens).toEqual([...word]);
      else {
        const kept = tokens.slice(0, -1);
        expect([positiveIds, negativeIds].some((ids) => kept.every((token, i) => token === ids[i]))).toBe(
          true,
        );
      }
      for (const [i, logprob] of oldLogprobs.entries())
        expect(Math.abs(logprob - (samplerLogprobs[i] as number))).toBeLessThan(
          f32Bound(device, 1e-5, baseDirectory('embedded')),
        );
    }
  });

  test('a rollout frees the memory of sampling before training', async () => {
    await device.synchronize();
    const { liveBytes } = device.stats();
    device.resetPeak();
    await rollOut([0, 1, 2]);
    await device.synchronize();
    expect(device.stats().peakBytes).toBeGreaterThan(liveBytes);
    expect(device.stats().liveBytes).toBe(liveBytes);
  });

  test('enumerated answers are both words, with the log-probs of the training forward', async () => {
    const found = await rollOut([0], {
      settings: { rollout: 'enumerate', temperature: 0.5, reference: 'sft' },
    });
    const { positiveIds, negativeIds } = tokenizer.template;
    expect(found?.map(({ answers }) => answers.map(({ tokens }) => tokens))).toEqual(
      found?.map(() => [[...positiveIds], [...negativeIds]]),
    );
  });

  test('a rollout that is stopped returns undefined', async () => {
    const stop = new AbortController();
    stop.abort();
    expect(await rollOut([0, 1], {}, { signal: stop.signal })).toBeUndefined();
  });
});
