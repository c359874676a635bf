/** The cases of reinforcement learning: a whole step beside TRL's GRPO, its parts, and what branches of a prompt save. */
import type { Group, RlCase } from './cases.js';
import { rlCase } from './counted-cases.js';
import { QWEN_0_5B, SMALL } from './models.js';

const RANK = 16;

export function rlGroups(): readonly Group[] {
  const small = { prompts: 8, generations: 8, prompt: 64, newTokens: 64, rank: RANK };
  const large = { prompts: 2, generations: 4, prompt: 64, newTokens: 32, rank: RANK };
  return [
    {
      title: 'GRPO step, LoRA r = 16, f32, a model of 12M parameters',
      cases: [rlCase('f32', SMALL, small, 'all')],
      settings: ['TRL'],
    },
    {
      title: 'GRPO step, LoRA r = 16, bf16, Qwen2.5-0.5B',
      cases: [rlCase('bf16', QWEN_0_5B, large, 'all')],
      // Weights in bf16 or, as TRL does by default, in f32 under autocast.
      settings: ['TRL', 'TRL, autocast'],
    },
    // TRL has no trainer with a critic any more, and times no part apart: sampling is transformers' and updates are written with PEFT.
    ...(
      [
        ['rollout', 'sampling', ['generate']],
        ['score', 'scores of the reference', []],
        ['update', 'GRPO update', ['PEFT']],
        ['update with critic', 'PPO update', ['PEFT']],
      ] as const
    ).map(([part, name, settings]) => ({
      title: `${name}, LoRA r = 16, f32, a model of 12M parameters`,
      cases: [rlCase('f32', SMALL, small, part)],
      settings,
    })),
    {
      title: 'update on the solutions of a prompt, f32, as branches and apart',
      cases: [64, 1024].flatMap((prompt) =>
        [4, 8, 16].flatMap((generations) =>
          (['update', 'update apart'] as const).map(
            (part): RlCase =>
              rlCase('f32', SMALL, { prompts: 1, generations, prompt, newTokens: 64, rank: RANK }, part),
          ),
        ),
      ),
      settings: [],
    },
  ];
}
