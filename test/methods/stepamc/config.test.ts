// What configurations of StepAMC are refused.
import { describe, expect, test } from 'vitest';
import { completeRunConfig } from '../../../src/methods/config.js';
import { centering, type StepAmcRunConfig } from '../../../src/methods/stepamc/config.js';

const config = ({ data = {}, ...more }: { readonly data?: object; readonly [section: string]: unknown }) =>
  completeRunConfig({
    method: 'stepamc',
    data: { source: 'arithmetic', ...data },
    ...more,
  } as never) as StepAmcRunConfig;

describe('scores of steps instead of verdicts', () => {
  const reward_network = { pair_mode: 'step' };
  test('are centred by the running mean, and not by the mean of two verdicts', () => {
    expect(centering(config({}).reward_network)).toBe('pair_mean');
    expect(centering(config({ reward_network }).reward_network)).toBe('running');
    expect(centering(config({ reward_network: { ...reward_network, center: 'none' } }).reward_network)).toBe(
      'none',
    );
    expect(() => config({ reward_network: { ...reward_network, center: 'pair_mean' } })).toThrow(
      /reward_network\.center "pair_mean" needs a score of each verdict/,
    );
  });
});

describe('verdicts after reasons', () => {
  const prompt = { response_format: 'rationale_then_verdict' };
  test.each([
    [
      { verdict_ppo: { rollout: 'enumerate' } },
      /verdict_ppo\.rollout "enumerate" scores the two words alone/,
    ],
  ])('refuse %j', (more, message) => {
    expect(() => config({ prompt, ...more })).toThrow(message);
    config(more);
  });
});

test('DPO of verdicts compares the two words alone', () => {
  const dpo = { method: 'verdict_dpo', prompt: { response_format: 'rationale_then_verdict' } };
  expect(() => config(dpo)).toThrow(/method "verdict_dpo" compares the two words alone/);
  config({ method: 'verdict_dpo' });
});

test('supervised verdicts without an epoch need a judge to measure', () => {
  const none = { method: 'sft', sft: { num_train_epochs: 0 } };
  expect(() => config(none)).toThrow(/sft\.num_train_epochs 0 trains nothing with method "sft"/);
});

describe('steps without a label', () => {
  test.each([{ verdict_ppo: { steps: 'all' } }, { verdict_ppo: { steps: 'unlabelled' } }])(
    'of %j are those that have none: not those of other parts, nor those that balance took one from',
    (more) => {
      config(more);
      expect(() => config({ ...more, data: { split_unit: 'sample' } })).toThrow(
        /steps without a label, and with data\.split_unit "sample" those are steps of the validation and test parts/,
      );
      for (const balance of ['downsample', 'upsample'])
        expect(() => config({ ...more, data: { balance } })).toThrow(
          /those are also the ones whose label data\.balance "\w+" took away/,
        );
    },
  );
  test('of no use are no obstacle', () => {
    config({ data: { split_unit: 'sample', balance: 'upsample' } });
  });
});
