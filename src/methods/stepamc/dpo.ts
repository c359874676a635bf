/** Direct preference optimisation, right verdict over wrong verdict: a baseline on the same roles and pairs. */
import { Tape } from '../../autograd/tape.js';
import type { Dataset } from '../../data/dataset.js';
import { dpo } from '../../objectives/pairs.js';
import { readStatistics } from '../../objectives/statistics.js';
import { spanSum } from '../../ops/advantage.js';
import type { Tensor } from '../../runtime/tensor.js';
import { groupBySize, scheduleBatches } from '../../sequences/batching.js';
import { type HiddenStates, hiddenStates, logprobsAt } from '../../sequences/forward.js';
import { type AnswerRow, learnedSequences, type VerdictSequence } from '../../sequences/sequence.js';
import { AdamW, adamSettings } from '../../train/adamw.js';
import { batchedStage } from '../../train/batched-stage.js';
import type { OpenTraining, TrainingStage } from '../../train/stage.js';
import type { StepAmcRunConfig } from './config.js';
import type { StepAmcRoles } from './roles.js';

export interface DpoStageOptions {
  readonly roles: StepAmcRoles;
  readonly settings: StepAmcRunConfig['dpo'];
  readonly sequences: Dataset<VerdictSequence>;
  readonly microBatchTokens: number;
  readonly seed: number;
  /** Train for this many tokens instead of by epochs. */
  readonly tokens?: number | undefined;
  readonly validate?: OpenTraining['validate'];
}

export function dpoStage(options: DpoStageOptions): TrainingStage {
  const { roles, settings, sequences, seed } = options;
  const length = (i: number) => sequences.get(i).ids.length;
  const batches = scheduleBatches(learnedSequences(sequences), {
    epochs: settings.num_train_epochs,
    maxBatches: settings.max_steps > 0 ? settings.max_steps : undefined,
    tokens: options.tokens,
    seed,
    sizeOf: length,
    tokensOf: length,
    batchSize: settings.tokens_per_step,
  });
  return batchedStage({
    name: 'dpo',
    batches,
    settings,
    parameters: roles.policyParameters,
    optimizer: () => new AdamW(roles.policyParameters, adamSettings(settings)),
    best: 'f1_macro',
    begin: () => roles.keepReference(),
    validate: options.validate,
    async gradients(chosen) {
      const batch = chosen.map((i) => sequences.get(i));
      const metrics = await preferRight(options, batch);
      return {
        metrics,
        shown: { accuracy: metrics.preference_accuracy },
        tokens: batch.reduce((sum, { ids }) => sum + ids.length, 0),
      };
    },
  });
}

async function preferRight(
  { roles, settings, microBatchTokens }: DpoStageOptions,
  batch: readonly VerdictSequence[],
): Promise<{ loss: number; preference_accuracy: number; reward_margin: number }> {
  const { decoder, policy, reference, policyParameters } = roles;
  const { device } = decoder;
  policyParameters.zeroGrads();
  const count = (sequence: VerdictSequence) => sequence.verdicts.filter(({ label }) => label !== null).length;
  const total = batch.reduce((sum, sequence) => sum + count(sequence), 0);
  const metrics = { loss: 0, preference_accuracy: 0, reward_margin: 0 };
  for (const group of groupBySize(batch, ({ ids }) => ids.length, microBatchTokens)) {
    const judged = group.map(({ verdicts }) => verdicts.filter(({ label }) => label !== null));
    const side = (right: boolean) =>
      judged.map((list) =>
        list.map(({ label, positive, negative }) => ((label === 1) === right ? positive : negative)),
      );
    const [chosen, rejected] = [side(true), side(false)];
    const pairs = judged.flat().length;
    const states = device.scope(() => hiddenStates(decoder, reference, group), 'reference');
    const refs = device.scope(
      () => [answerLogprobs(states, chosen), answerLogprobs(states, rejected)] as const,
    );
    states.hidden.dispose();
    const tape = new Tape(device);
    const objective = device.scope(
      () =>
        tape.run(() => {
          const own = hiddenStates(decoder, policy, group);
          return dpo(
            {
              chosen: answerLogprobs(own, chosen),
              rejected: answerLogprobs(own, rejected),
              refChosen: refs[0],
              refRejected: refs[1],
              weights: device.tensor(new Float32Array(pairs).fill(1 / total)),
            },
            { beta: settings.beta, labelSmoothing: settings.label_smoothing },
          );
        }),
      'policy',
    );
    tape.backward([[objective.loss, 1]]);
    tape.dispose();
    for (const tensor of refs) tensor.dispose();
    const [[loss], { accuracy, margin }] = await Promise.all([
      objective.loss.readFloats(),
      readStatistics(objective.statistics),
    ]);
    objective.loss.dispose();
    objective.statistics.values.dispose();
    metrics.loss += loss as number;
    metrics.preference_accuracy += (pairs / total) * accuracy;
    metrics.reward_margin += (pairs / total) * margin;
  }
  return metrics;
}

/** Log-probability of each whole answer, f32 [answers]. */
function answerLogprobs(
  states: HiddenStates,
  answers: readonly (readonly (readonly AnswerRow[])[])[],
): Tensor {
  const { device } = states.decoder;
  const { logprobs } = logprobsAt(
    states,
    answers.map((list) => list.flat()),
  );
  const spans: number[] = [];
  let at = 0;
  for (const { length } of answers.flat()) {
    spans.push(at, at + length);
    at += length;
  }
  return spanSum(logprobs, device.tensor(Int32Array.from(spans), [spans.length / 2, 2]));
}
