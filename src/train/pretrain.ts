/** Language modelling of step-by-step solutions: how the embedded arithmetic base is made. */
import type { StepRecord } from '../data/record.js';
import { solutionSegments } from '../data/solution.js';
import { segmentTokenizer } from '../tokenizer/segments.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { groupByTokens } from './batching.js';
import { scoreRows } from './forward.js';
import { maskedSequence, type TrainingSequence } from './sequence.js';
import type { Trainee } from './trainee.js';

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
  for (const group of groupByTokens(sequences, ({ ids }) => ids.length, microBatchTokens)) {
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
