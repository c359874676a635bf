/** A step of GRPO or PPO as `method: ppo` does it: rollout, scores of policy and reference, advantages, update; or a part of it. */
import type { TrainableParameters } from '#src/autograd/parameters.js';
import { Generator } from '#src/generate/generator.js';
import { completeRunConfig } from '#src/methods/config.js';
import { solutionAdvantage } from '#src/methods/ppo/advantage.js';
import type { PpoRunConfig } from '#src/methods/ppo/config.js';
import { solutionObjective } from '#src/methods/ppo/objective.js';
import type { Critic } from '#src/methods/ppo/roles.js';
import { type SolutionGroup, solutionRollouts } from '#src/methods/ppo/rollout.js';
import { scoresInUpdate, settled } from '#src/methods/ppo/settings.js';
import type { Decoder } from '#src/models/decoder.js';
import type { Device } from '#src/runtime/device.js';
import { AdamW, adamSettings } from '#src/train/adamw.js';
import { KlControl } from '#src/train/policy/kl.js';
import { valueHead, valueHeadOf } from '#src/train/roles/value-head.js';
import type { SolutionPrompt } from '#src/train/solutions/prompts.js';
import type { SampledSolution, SolutionSource } from '#src/train/solutions/solution-source.js';
import { applyGradients } from '#src/train/update.js';
import type { RlCase } from '../cases.js';
import { newAdapter, randomDecoder } from './decoder.js';
import { randomIds } from './random.js';
import { stopwatch } from './stopwatch.js';

const LEARNING_RATE = 1e-6;

export async function benchRl(device: Device, item: RlCase, seconds: number): Promise<number[]> {
  const { prompts: count, generations, prompt: length, newTokens, rank, part } = item;
  const decoder = await randomDecoder(device, item.config, item.dtype);
  const adapter = newAdapter(decoder, rank);
  const parameters = adapter.trainable as TrainableParameters;
  const config = completeRunConfig({
    method: 'ppo',
    data: { source: 'word_problems', max_length: length + newTokens },
    rollout: { num_generations: generations, max_new_tokens: newTokens },
    lora: { r: rank, lora_alpha: 2 * rank, lora_dropout: 0 },
    ppo: {
      algorithm: part === 'update with critic' ? 'ppo' : 'grpo',
      branches: part !== 'update apart',
      micro_batch_tokens: 4096,
    },
  }) as PpoRunConfig;
  const settings = settled(config);
  const roles = {
    decoder,
    policy: { adapter },
    policyParameters: parameters,
    reference: { decoder, role: {} },
    critic: part === 'update with critic' ? newCritic(decoder, rank) : undefined,
  };
  let round = 0;
  const promptOf = (id: number): SolutionPrompt => ({
    id,
    ids: [...randomIds(length, decoder.config.vocabSize, 1 + id + round * count)],
  });
  const generator = new Generator(decoder, { maxRows: count * generations });
  const sample = async (prompts: readonly SolutionPrompt[], iteration: number) => {
    const request = {
      n: generations,
      maxNewTokens: newTokens,
      ignoreEos: true,
      iteration,
      role: { adapter },
    };
    const drawn = await generator.generate(
      prompts.map(({ ids }) => ids),
      request,
    ).samples;
    generator.release();
    return drawn.map((list) =>
      list.map(({ tokens, temperedLogprobs }): SampledSolution => {
        return { tokens, logprobs: [...temperedLogprobs], text: '', finishReason: 'stop' };
      }),
    );
  };
  const items = Array.from({ length: count }, (_, i) => i);
  const batch = { items, iteration: 0, signal: new AbortController().signal };
  const common = { roles, settings, promptOf, temperature: 1, microBatchTokens: 4096 };
  // Where sampling is not what is timed, it is done once.
  const kept = part === 'all' ? undefined : await sample(items.map(promptOf), 0);
  const source: SolutionSource = {
    sample: async (prompts, { iteration }) => kept ?? sample(prompts, iteration),
  };
  const rollouts = solutionRollouts({
    ...common,
    n: generations,
    source,
    scoredLater: scoresInUpdate(settings),
  });
  const advantage = solutionAdvantage(device, settings);
  const objective = solutionObjective({
    ...common,
    kl: new KlControl(settings),
    longest: newTokens,
    steps: 1,
  });
  const optimizer = new AdamW(parameters, adamSettings(settings));
  const credited = async (groups: readonly SolutionGroup[]) =>
    advantage.credit(
      groups,
      groups.map(({ answers }) =>
        answers.map(({ tokens }, i) => ({
          value: i % 2,
          byToken: tokens.map((_, t) => (t + 1 === tokens.length ? i % 2 : 0)),
        })),
      ),
    );
  const update = async (groups: Awaited<ReturnType<typeof credited>>) => {
    const { terms } = await objective.gradients(groups, 0);
    const { nonFinite } = await applyGradients(optimizer, LEARNING_RATE, terms);
    if (nonFinite !== undefined) throw new Error(`${nonFinite} is not finite`);
  };
  const rollOut = async () => (await rollouts.rollOut({ ...batch, iteration: round })) ?? [];
  const learned = part.startsWith('update') ? await credited(await rollOut()) : [];
  const steps: Record<RlCase['part'], () => Promise<void>> = {
    async all() {
      round++;
      await update(await credited(await rollOut()));
    },
    async rollout() {
      round++;
      await sample(items.map(promptOf), round);
    },
    async score() {
      await rollOut();
    },
    update: () => update(learned),
    'update apart': () => update(learned),
    'update with critic': () => update(learned),
  };
  const samples = await stopwatch(device, seconds, steps[part]);
  generator.dispose();
  roles.critic?.own?.role.adapter?.dispose();
  optimizer.dispose();
  adapter.dispose();
  decoder.dispose();
  return samples;
}

/** A head of values on an adapter of its own. */
function newCritic(decoder: Decoder, rank: number): Critic {
  const adapter = newAdapter(decoder, rank, {}, valueHead(decoder.config, 1));
  const parameters = adapter.trainable as TrainableParameters;
  return {
    head: valueHeadOf(parameters),
    trained: parameters,
    own: { decoder, role: { adapter }, parameters },
  };
}
