import { expect, test } from 'vitest';
import { inMemory } from '../../../src/data/dataset.js';
import { verdictTokenizer } from '../../../src/data/verdict.js';
import { completeRunConfig } from '../../../src/methods/config.js';
import { policyTokens } from '../../../src/methods/stepamc/policy.js';
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
