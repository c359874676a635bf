/** Accuracy of a model's predictions of the tokens that it is to learn. */
import { groupBySize } from '../sequences/batching.js';
import { overGroups } from '../sequences/divided.js';
import { scoreRows } from '../sequences/forward.js';
import type { TrainingSequence } from '../sequences/sequence.js';
import type { Trainee } from './roles/trainee.js';

/** The measurement of `answerAccuracy`; empty where there was nothing to measure it on. */
export type AnswerAccuracy =
  | { readonly token_accuracy: number; readonly validation_loss: number }
  | Readonly<Record<string, never>>;

/** Share of learned tokens that the model ranks first, and their mean loss in nats. */
export async function answerAccuracy(
  { decoder, role }: Pick<Trainee, 'decoder' | 'role'>,
  sequences: Iterable<TrainingSequence>,
  microBatchTokens: number,
): Promise<AnswerAccuracy> {
  let right = 0;
  let loss = 0;
  let count = 0;
  const { device } = decoder;
  const measure = async (group: readonly TrainingSequence[]) => {
    const items = group.map((sequence) => ({ sequence, rows: sequence.targets }));
    const tokens = group.flatMap(({ targets }) => targets.map(({ token }) => token));
    if (tokens.length === 0) return undefined;
    const scores = device.scope(() => scoreRows(decoder, role, items), 'validate');
    const [logprobs, argmax] = await Promise.all([scores.logprobs.readFloats(), scores.argmax.read()]);
    for (const tensor of Object.values(scores)) tensor.dispose();
    return { logprobs, isRight: tokens.map((token, i) => argmax[i] === token) };
  };
  const groups = groupBySize(sequences, ({ ids }) => ids.length, microBatchTokens);
  await overGroups(device, groups, measure, {
    onGroup(found) {
      if (!found) return;
      right += found.isRight.filter((is) => is).length;
      for (const logprob of found.logprobs) loss -= logprob;
      count += found.logprobs.length;
    },
  });
  return count > 0 ? { token_accuracy: right / count, validation_loss: loss / count } : {};
}

/** The names of a measurement of the validation part beside metrics of the test part. */
export function ofValidation(measured: AnswerAccuracy): Readonly<Record<string, number>> {
  if (measured.token_accuracy === undefined) return {};
  const { token_accuracy: right, validation_loss } = measured;
  return { validation_token_accuracy: right, validation_loss };
}

/** The line for the end of a run. `what`: the held-out data; `tokens`: the measured tokens. */
export function accuracySummary(what: string, tokens: string, measured: AnswerAccuracy): string {
  if (measured.token_accuracy === undefined)
    return `held-out ${what}: there are none in the validation part, so nothing was measured`;
  const { token_accuracy: right, validation_loss: loss } = measured;
  return `held-out ${what}: ${(100 * right).toFixed(2)} % of ${tokens} right, loss ${loss.toFixed(4)}`;
}
