/** The cases of generation: the shapes of Qwen2.5-0.5B and Qwen3.5-0.8B in bf16, random weights, prompts of 128 tokens. */
import type { GenerateCase, Group, RuntimeCase } from './cases.js';
import { gemmCase, generateCase, opCase } from './counted-cases.js';
import { QWEN_0_5B, QWEN3_5_0_8B } from './models.js';

const PROMPT = 128;
const RANK = 16;
const NEW_TOKENS = 32;

/** transformers as users run it and at its fastest, and llama.cpp where STEPTRAIN_LLAMA_BENCH names its binary. */
const SETTINGS = [
  'transformers bf16',
  'transformers bf16, static cache',
  'transformers bf16, static cache, compiled',
  'transformers f32',
  ...(process.env.STEPTRAIN_LLAMA_BENCH ? ['llama.cpp bf16', 'llama.cpp f16'] : []),
  ...(process.env.STEPTRAIN_NODE_LLAMA ? ['node-llama-cpp bf16', 'node-llama-cpp f16'] : []),
];

/** The read takes 1 GiB, as a step does: of 128 MiB a cache of 32 MiB holds enough to make memory look a fifth faster. */
const LIMITS = [opCase('f32', 'finite', 65_536, 4096), gemmCase('bf16', 'linear', [2048, 2048, 2048])];

export function generateGroups(suite: GenerateCase['suite']): readonly Group[] {
  const group = (
    title: string,
    cases: readonly (readonly [batch: number, prompt: number, rank: number])[],
  ) => ({
    title: `${title}, bf16`,
    limits: LIMITS,
    cases: cases.map(([batch, prompt, rank]) =>
      generateCase(suite, 'bf16', QWEN_0_5B, { batch, prompt, rank, newTokens: NEW_TOKENS }),
    ),
  });
  if (suite === 'prefill') {
    return [
      {
        ...group('prefill', [
          [4, PROMPT, 0],
          [1, 1024, 0],
        ]),
        settings: SETTINGS,
      },
    ];
  }
  // A group for each batch: its trials are short where the batch is small.
  return [1, 4, 16, 64].flatMap((batch) => [
    { ...group(`decode of ${batch}`, [[batch, PROMPT, 0]]), settings: SETTINGS },
    {
      ...group(`decode of ${batch} with an adapter`, [
        [batch, PROMPT, 0],
        [batch, PROMPT, RANK],
      ]),
      settings: [],
    },
    {
      title: `decode of ${batch}, Qwen3.5-0.8B, bf16`,
      limits: LIMITS,
      cases: [
        generateCase(suite, 'bf16', QWEN3_5_0_8B, { batch, prompt: PROMPT, rank: 0, newTokens: NEW_TOKENS }),
      ],
      // transformers' own cache for a state is left out: llama.cpp is the faster rival on all shapes.
      settings: SETTINGS.filter((setting) => setting.includes('llama')),
    },
  ]);
}

/** What no rival has a word for. */
export function generationCases(): readonly RuntimeCase[] {
  const suite = 'generation';
  const env = {};
  return [
    { suite, name: 'the embedded base, 64 rows', measure: 'small model', count: 64, env },
    {
      suite,
      name: 'decode attention of 64 rows after 1,024 tokens',
      measure: 'shared attention',
      count: 200,
      env,
    },
    { suite, name: '64 samples of a prompt of 1,024 tokens', measure: 'shared prompt', count: 16, env },
    {
      suite,
      name: '16 samples of a prompt of 1,024 tokens, Qwen3.5-0.8B',
      measure: 'shared prompt with states',
      count: 16,
      env,
    },
    { suite, name: '2,000 ragged requests', measure: 'ragged requests', count: 2000, env },
  ];
}
