/** A step of a reward model of steps in TRL's layout, as `method: reward` does it. */
import type { TrainableParameters } from '#src/autograd/parameters.js';
import { learnRewards, type RewardLearning } from '#src/methods/reward/stage.js';
import { createAdapter, withHead } from '#src/models/adapter.js';
import type { Device } from '#src/runtime/device.js';
import { type RewardItem, rewardItem } from '#src/scoring/reward-model/items.js';
import { AdamW, adamSettings } from '#src/train/adamw.js';
import { parseAdapterConfig } from '#src/weights/adapter-config.js';
import type { TrainerCase } from '../cases.js';
import { randomDecoder } from './decoder.js';
import { randomIds } from './random.js';
import { stopwatch } from './stopwatch.js';
import { update } from './update.js';

/** Batches of different solutions, taken in turn. */
const BATCHES = 4;
/** Tokens of a step with its separator. */
const STEP = 8;

export async function benchPrm(device: Device, item: TrainerCase, seconds: number): Promise<number[]> {
  const { answers, prompt, answer, rank } = item;
  const decoder = await randomDecoder(device, item.config, item.dtype);
  const model = withHead(decoder.config, { kind: 'token', numLabels: 2, bias: true });
  const settings = { peft_type: 'LORA', r: rank, lora_alpha: 2 * rank, target_modules: 'all-linear' };
  const config = parseAdapterConfig({ ...settings, modules_to_save: ['score'] }, 'bench');
  const adapter = createAdapter(device, model, config, { seed: 1 });
  const parameters = adapter.trainable as TrainableParameters;
  const learning: RewardLearning = {
    network: { decoder, role: { adapter }, head: 'classes', neutral_score: 'positive', words: [0, 0] },
    parameters,
    weigh: () => 1,
    microBatchTokens: answers * (prompt + answer),
    seed: 1,
  };
  const items = Array.from({ length: BATCHES * answers }, (_, i) => solution(item, i, model.vocabSize));
  const optimizer = new AdamW(
    parameters,
    adamSettings({
      weight_decay: 0,
      adam_beta1: 0.9,
      adam_beta2: 0.999,
      adam_epsilon: 1e-8,
      max_grad_norm: 1,
    }),
  );
  const samples = await stopwatch(device, seconds, async (run) => {
    const first = (run % BATCHES) * answers;
    const { metrics } = await learnRewards(learning, items.slice(first, first + answers), run);
    await update(optimizer, metrics.loss);
  });
  optimizer.dispose();
  adapter.dispose();
  decoder.dispose();
  return samples;
}

function solution({ prompt, answer }: TrainerCase, index: number, vocabulary: number): RewardItem {
  const ends = Array.from({ length: answer / STEP }, (_, i) => prompt + (i + 1) * STEP);
  const labels = ends.map((_, i) => ((index + i) % 2 === 0 ? (1 as const) : (0 as const)));
  const ids = randomIds(prompt + answer, vocabulary, index + 1);
  const options = { type: 'prm', input: 'whole', whole: false, maxLength: prompt + answer } as const;
  return rewardItem({ ids, ends, labels }, index, { tailIds: [] }, options);
}
