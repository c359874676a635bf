import { goldenDirectory } from '../../models/golden.js';

/** Of PPO on a golden model whose rollouts a server may sample; sections given are added to. */
export const remoteConfig = (lora: unknown, rollout: object = {}, ppo: object = {}) => ({
  method: 'ppo',
  model: { base: goldenDirectory('llama3'), tokenizer: 'bytes', dtype: 'f32' },
  lora,
  data: { source: 'word_problems', word_problems: { samples: 40, levels: [1] }, max_length: 250 },
  rollout: { num_generations: 3, max_new_tokens: 12, template: '{problem}\n', stop: ['ee'], ...rollout },
  reward: { format: { weight: 1, pattern: '[a-m]' }, length: { weight: 0.1, from: 2, to: 12 } },
  ppo: {
    learning_rate: 1e-2,
    rollout_batch: 12,
    max_iterations: 3,
    critic_warmup: 0,
    old_logprobs: 'sampler',
    ...ppo,
  },
  run: { device: 'cpu', threads: 1, logging_steps: 1 },
  eval: { max_samples: 2 },
});
