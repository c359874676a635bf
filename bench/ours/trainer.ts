/** A step of SFT, DPO or KTO on whole answers as the offline methods do it, with the reference's pass over the same answers. */
import type { TrainableParameters } from '#src/autograd/parameters.js';
import type { AnswerBatchConfig } from '#src/config/schema.js';
import { inMemory } from '#src/data/dataset.js';
import { completeRunConfig } from '#src/methods/config.js';
import { type BatchContext, runBatch } from '#src/methods/offline/answers/batch.js';
import type { OfflineObjective } from '#src/methods/offline/answers/objective.js';
import { trainingPlan } from '#src/methods/offline/answers/plan.js';
import { dpoObjective as dpo } from '#src/methods/offline/dpo.js';
import { ktoObjective as kto } from '#src/methods/offline/kto.js';
import { likelihood } from '#src/methods/offline/solution-sft.js';
import type { Device } from '#src/runtime/device.js';
import { type OfflineItem, offlineSequence } from '#src/scoring/implicit/items.js';
import { readSums, type SpanSums } from '#src/scoring/implicit/sums.js';
import { AdamW, adamSettings } from '#src/train/adamw.js';
import type { TrainerCase } from '../cases.js';
import { newAdapter, randomDecoder } from './decoder.js';
import { benchPrm } from './prm.js';
import { randomIds } from './random.js';
import { stopwatch } from './stopwatch.js';
import { update } from './update.js';

type AnswersMethod = Exclude<TrainerCase['method'], 'prm'>;

/** Batches of different answers, taken in turn. */
const BATCHES = 4;

export async function benchTrainer(device: Device, item: TrainerCase, seconds: number): Promise<number[]> {
  if (item.method === 'prm') return benchPrm(device, item, seconds);
  const decoder = await randomDecoder(device, item.config, item.dtype);
  const adapter = newAdapter(decoder, item.rank);
  const parameters = adapter.trainable as TrainableParameters;
  const { method, answers } = item;
  const { settings, objective } = learned({ method, answers });
  const maxLength = item.prompt + item.answer;
  const microBatchTokens = item.answers * maxLength;
  const items = inMemory(randomItems(item, decoder.config.vocabSize));
  const plan = trainingPlan(items, { settings, seed: 1, pairs: objective.needsMismatched, maxLength });
  const references: (readonly SpanSums[])[] = [];
  const context: BatchContext = {
    ...{ decoder, role: { adapter }, objective, plan, references, microBatchTokens },
  };
  const optimizer = new AdamW(parameters, adamSettings(settings));
  const samples = await stopwatch(device, seconds, async (run) => {
    const index = run % BATCHES;
    if (objective.needsReference) await refer(index);
    const { metrics } = await runBatch(context, index, { parameters, dropout: { seed: 1, step: run } });
    await update(optimizer, metrics.loss);
  });
  optimizer.dispose();
  adapter.dispose();
  decoder.dispose();
  return samples;

  /** A run does it once for each answer, before it trains; over one epoch that is the same work. */
  async function refer(index: number): Promise<void> {
    const batch = plan.batches[index] as readonly number[];
    const pairs = plan.pairsOf(index);
    const places = [...batch, ...pairs.map((_, i) => plan.pairsAt(index) + i)];
    const asked = [...batch.map((i) => items.get(i)), ...pairs];
    const sums = await readSums(
      decoder,
      {},
      asked.map((each, i) => offlineSequence(each, i)),
    );
    for (const [i, each] of asked.entries())
      references[places[i] as number] = sums.splice(0, each.answers.length);
  }
}

function learned({ method, answers }: Pick<TrainerCase, 'answers'> & { readonly method: AnswersMethod }): {
  readonly settings: AnswerBatchConfig;
  readonly objective: OfflineObjective;
} {
  const batch_size = method === 'dpo' ? answers / 2 : answers;
  const data = { train: 'none.jsonl' };
  switch (method) {
    case 'sft': {
      const config = completeRunConfig({ method: 'solution_sft', data, solution_sft: { batch_size } });
      return { settings: sectionOf(config, 'solution_sft'), objective: likelihood() };
    }
    case 'dpo': {
      const config = completeRunConfig({ method: 'dpo', data, dpo: { batch_size } });
      const settings = sectionOf(config, 'dpo') as AnswerBatchConfig & Parameters<typeof dpo>[0];
      return { settings, objective: dpo(settings) };
    }
    case 'kto': {
      const config = completeRunConfig({ method: 'kto', data, kto: { batch_size } });
      const settings = sectionOf(config, 'kto') as AnswerBatchConfig & Parameters<typeof kto>[0];
      return { settings, objective: kto(settings) };
    }
  }
}

function sectionOf(config: object, name: string): AnswerBatchConfig {
  return (config as Record<string, AnswerBatchConfig>)[name] as AnswerBatchConfig;
}

/** A problem each; of KTO's answers every other one is wrong. */
function randomItems({ method, answers, prompt, answer }: TrainerCase, vocabulary: number): OfflineItem[] {
  const each = method === 'dpo' ? 2 : 1;
  let seed = 0;
  const draw = (length: number) => Array.from(randomIds(length, vocabulary, ++seed));
  return Array.from({ length: (BATCHES * answers) / each }, (_, problem) => ({
    problem,
    prompt: draw(prompt),
    answers: Array.from({ length: each }, (_, i) => ({
      ids: draw(answer),
      from: 0,
      steps: [],
      label: (problem + i) % 2 === 0 ? (1 as const) : (0 as const),
    })),
  }));
}
