import { expect, it } from 'vitest';
import { fewSteps } from '../../../src/train/plan/few-steps.js';

const said = (name: string, steps: number, key: string) =>
  fewSteps({ name, steps, batching: { [`${name}.${key}`]: 1024 } });

it('says of a stage of few steps which keys give it more', () => {
  expect(said('sft', 4, 'tokens_per_step')).toBe(
    'sft takes 4 optimizer steps, which teach little: give more rows, about 13 times the epochs (sft.num_train_epochs), ' +
      'or a smaller batch (sft.tokens_per_step, now 1024, at least data.max_length)',
  );
  expect(
    fewSteps({
      name: 'reward',
      section: 'reward_model',
      steps: 4,
      batching: { 'reward.tokens_per_step': 9 },
    }),
  ).toMatch(/^reward takes 4 .*\(reward_model\.num_train_epochs\).*\(reward_model\.tokens_per_step, now 9/);
  const bound = { name: 'sft', steps: 8, batching: { 'sft.tokens_per_step': 1024 } };
  expect(fewSteps({ ...bound, settings: { max_steps: 8 } })).toBe(
    'sft takes 8 optimizer steps, which teach little, as sft.max_steps asks: enough to try it',
  );
  expect(fewSteps({ ...bound, settings: { max_steps: 30 } })).toContain('sft.num_train_epochs');
  expect(said('step_kto-2', 1, 'batch_size')).toMatch(
    /takes 1 optimizer step, which teaches little: .* 50 times .*\(step_kto\.num_train_epochs\).*\(step_kto\.batch_size, now/,
  );
});

it('says nothing where there are enough, none, or where something else decides', () => {
  expect(said('sft', 20, 'tokens_per_step')).toBeUndefined();
  expect(said('sft', 0, 'tokens_per_step')).toBeUndefined();
  expect(said('ppo', 8, 'rollout_batch')).toBeUndefined();
});
