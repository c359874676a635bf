import { expect, test } from 'vitest';
import { inMemory } from '../../../src/data/dataset.js';
import { verdictTokenizer } from '../../../src/data/verdict.js';
import { completeRunConfig } from '../../../src/methods/config.js';
import { policyTokens } from '../../../src/methods/stepamc/policy.js';
import { rewardData } from '../../../src/methods/stepamc/reward/data.js';
import type { StepAmcRun } from '../../../src/methods/stepamc/run.js';
import type { StepLabel } from '../../../src/records/record.js';
import { verdictSequence } from '../../../src/sequences/sequence.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';

test('the tokens of a policy that writes reasons count one for every step that it is asked about', () => {
  const tokenizer = verdictTokenizer(
    { template: 'compact', response_format: 'rationale_then_verdict', rationale_tokens: 10 },
    byteTokenizer(),
  );
  const sequence = (label: StepLabel, reason?: string) => {
    const steps = [{ text: '1+1=2', label, kind: 'normal' as const }];
    const solution = tokenizer.solution({ problem: '1+1', steps }, { steps: 'all' });
    const verdicts = solution.verdicts.map((place) => ({
      ...place,
      ...(reason === undefined ? {} : { rationale: tokenizer.reason(reason) }),
    }));
    return verdictSequence({ ...solution, verdicts }, tokenizer, 0);
  };
  const tokensOf = (steps: string, ...train: ReturnType<typeof sequence>[]) => {
    const data = { source: 'arithmetic' };
    const config = completeRunConfig({
      method: 'stepamc',
      data,
      verdict_ppo: { steps, num_ppo_epochs: 1 },
    } as never);
    return policyTokens({ config, data: { sequences: { train: inMemory(train) } } } as unknown as StepAmcRun);
  };
  const written = sequence(1, 'sum 2');
  expect(written.ids.length).toBeGreaterThan(sequence(null).ids.length);
  expect(tokensOf('all', written, sequence(null))).toBe(2 * written.ids.length);
  expect(tokensOf('labelled', written, sequence(null))).toBe(written.ids.length);
  // Words alone have no reasons to count.
  expect(tokensOf('all', sequence(1), sequence(0))).toBe(2 * sequence(1).ids.length);
});

test.each([
  ['label', 10, 2 * 4],
  ['label', 0, 0],
  ['step', 10, 0],
])('pairs of mode %s with reasons of at most %d tokens count %d more for each', (mode, longest, more) => {
  const format = longest > 0 ? 'rationale_then_verdict' : 'verdict';
  const tokenizer = verdictTokenizer(
    { template: 'compact', response_format: format, rationale_tokens: longest },
    byteTokenizer(),
  );
  const record = {
    problem: '1+1',
    steps: (['2', '3'] as const).map(
      (text) => ({ text, label: text === '2' ? 1 : 0, kind: 'normal' }) as const,
    ),
  };
  const solution = tokenizer.solution(record);
  // The first step has a reason of three letters and a line break, the second one waits for one.
  const verdicts = solution.verdicts.map((place, i) =>
    i === 0 && longest > 0 ? { ...place, rationale: tokenizer.reason('why') } : place,
  );
  const train = inMemory([verdictSequence({ ...solution, verdicts }, tokenizer, 0)]);
  const data = { sequences: { train }, records: { train: inMemory([record]) }, tokenizer };
  const { all } = rewardData(
    { config: { reward_network: { pair_mode: mode } }, data } as unknown as StepAmcRun,
    'train',
  );
  const [unit] = all;
  const read = unit?.sequences.reduce((sum, { ids }) => sum + ids.length, 0);
  expect(unit?.tokens).toBe((read ?? 0) + more * (unit?.pairs.length ?? 0));
  expect(unit?.pairs.length).toBeGreaterThan(0);
});
