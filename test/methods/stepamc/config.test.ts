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
  const frn = { pair_mode: 'step' };
  test('are centred by the running mean, and not by the mean of two verdicts', () => {
    expect(centering(config({}).frn)).toBe('pair_mean');
    expect(centering(config({ frn }).frn)).toBe('running');
    expect(centering(config({ frn: { ...frn, center: 'none' } }).frn)).toBe('none');
    expect(() => config({ frn: { ...frn, center: 'pair_mean' } })).toThrow(
      /frn\.center "pair_mean" needs a score of each verdict/,
    );
  });
  test('label nothing', () => {
    for (const by of ['frn', 'both'])
      expect(() => config({ frn, baseline: 'pseudo_labels', pseudo_labels: { by } })).toThrow(
        /pseudo_labels\.by "\w+" needs the probability that a step is right/,
      );
    config({ frn, baseline: 'pseudo_labels', pseudo_labels: { by: 'sft' } });
  });
});

describe('verdicts after reasons', () => {
  const prompt = { response_format: 'rationale_then_verdict' };
  test.each([
    [{ baseline: 'dpo' }, /baseline "dpo" compares the two words alone/],
    [{ baseline: 'pseudo_labels' }, /baseline "pseudo_labels" gives steps a label and no reason/],
    [
      { verdict_ppo: { rollout: 'enumerate' } },
      /verdict_ppo\.rollout "enumerate" scores the two words alone/,
    ],
  ])('refuse %j', (more, message) => {
    expect(() => config({ prompt, ...more })).toThrow(message);
    config(more);
  });
});

describe('steps without a label', () => {
  test.each([
    { baseline: 'pseudo_labels' },
    { verdict_ppo: { steps: 'all' } },
    { verdict_ppo: { steps: 'unlabelled' } },
  ])(
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
