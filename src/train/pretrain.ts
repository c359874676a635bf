/** Language modelling of step-by-step solutions: how the embedded arithmetic base is made. */
import type { PretrainRunConfig } from '../config/schema.js';
import { inMemory } from '../data/dataset.js';
import { solutionSegments } from '../data/solution.js';
import type { StepRecord } from '../records/record.js';
import { configuredRecords } from '../run/parts.js';
import { configuredTokenizer } from '../run/tokenizer.js';
import { groupBySize } from '../sequences/batching.js';
import { scoreRows } from '../sequences/forward.js';
import { maskedSequence, type TrainingSequence } from '../sequences/sequence.js';
import { segmentTokenizer } from '../tokenizer/segments.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import type { RunContext } from './context.js';
import { runStages } from './engine.js';
import { writeHeldMemory } from './held-memory.js';
import { settleMicroBatch } from './memory-plan.js';
import { reportFiles } from './notes.js';
import type { RunResult } from './result.js';
import { supervisedStage } from './supervised.js';
import { createTrainee, type Trainee } from './trainee.js';

export async function runPretrain(context: RunContext<PretrainRunConfig>): Promise<RunResult> {
  const { config, device, run } = context;
  const tokenizer = await configuredTokenizer(config.model);
  const { parts, reports } = await configuredRecords(config.data);
  reportFiles(reports);
  const learn = config.pretrain.loss_on === 'answers' ? 'results' : 'steps';
  const sequencesOf = (records: readonly StepRecord[]) =>
    pretrainSequences(records, tokenizer, learn, config.data.max_length);
  const train = sequencesOf(parts.train);
  const most = config.eval.max_samples;
  const heldOut = sequencesOf(most === 'all' ? parts.validation : parts.validation.slice(0, most));
  const trainee = await createTrainee(device, {
    model: config.model,
    lora: 'none',
    tokenizer,
    seed: config.run.seed,
    gradientCheckpointing: config.run.gradient_checkpointing,
  });
  try {
    const { decoder, role, parameters } = trainee;
    const microBatchTokens = settleMicroBatch(config, 'pretrain', config.pretrain, {
      device,
      decoder: decoder.config,
      saved: context.savedPlan,
    });
    const validate = () => answerAccuracy(trainee, heldOut, microBatchTokens);
    const stage = supervisedStage({
      name: 'pretrain',
      decoder,
      role,
      parameters,
      sequences: inMemory(train),
      optimization: config.pretrain,
      microBatchTokens,
      best: 'token_accuracy',
      seed: config.run.seed,
      validate: async (stop) => {
        const figures = await validate();
        return stop.aborted ? undefined : figures;
      },
    });
    await writeHeldMemory(run, config, decoder, trainee.held);
    const result = await runStages([stage], { model: parameters }, context.engine);
    if (result.status === 'finished' || context.outOfTime()) await trainee.save((name) => run.file(name));
    if (result.status === 'interrupted') return result;
    const figures = await validate();
    run.metrics.append({ step: result.step, phase: 'test', ...figures });
    console.error(
      `held-out answers: ${(100 * figures.token_accuracy).toFixed(2)} % of tokens right, loss ${figures.validation_loss.toFixed(4)}`,
    );
    return result;
  } finally {
    trainee.dispose();
  }
}

/** Whole solutions, each ended by the tokenizer's end token; see `solutionSegments` for what is learned. */
export function pretrainSequences(
  records: readonly StepRecord[],
  tokenizer: Tokenizer,
  learn: 'steps' | 'results',
  maxLength: number,
): TrainingSequence[] {
  const tokenize = segmentTokenizer(tokenizer);
  const end = tokenizer.eosId === undefined ? '' : tokenizer.decode([tokenizer.eosId]);
  let tooLong = 0;
  const sequences = records.flatMap((record, i) => {
    const sequence = tokenize(solutionSegments(record, { learn, end }), { specialTokens: 'start' });
    if (sequence.ids.length <= maxLength) return [maskedSequence(sequence, i)];
    tooLong++;
    return [];
  });
  if (tooLong > 0)
    console.error(`${tooLong} solutions are longer than data.max_length ${maxLength} and are left out`);
  return sequences;
}

/** Share of learned tokens that are the most likely ones, and their mean loss in nats. */
export async function answerAccuracy(
  { decoder, role }: Pick<Trainee, 'decoder' | 'role'>,
  sequences: readonly TrainingSequence[],
  microBatchTokens: number,
): Promise<{ readonly token_accuracy: number; readonly validation_loss: number }> {
  let right = 0;
  let loss = 0;
  let count = 0;
  for (const group of groupBySize(sequences, ({ ids }) => ids.length, microBatchTokens)) {
    const items = group.map((sequence) => ({ sequence, rows: sequence.targets }));
    const tokens = group.flatMap(({ targets }) => targets.map(({ token }) => token));
    if (tokens.length === 0) continue;
    const scores = decoder.device.scope(() => scoreRows(decoder, role, items), 'validate');
    const [logprobs, argmax] = await Promise.all([scores.logprobs.readFloats(), scores.argmax.read()]);
    for (const tensor of Object.values(scores)) tensor.dispose();
    tokens.forEach((token, i) => {
      if (argmax[i] === token) right++;
      loss -= logprobs[i] as number;
    });
    count += tokens.length;
  }
  return { token_accuracy: count > 0 ? right / count : 0, validation_loss: count > 0 ? loss / count : 0 };
}
