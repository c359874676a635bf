/** The training of `method: verdict_dpo`. */
import { selectionOf } from '../../data/rare-class.js';
import { dpo } from '../../objectives/pairs.js';
import { spanSum } from '../../ops/advantage.js';
import type { Tensor } from '../../runtime/tensor.js';
import { type HiddenStates, hiddenStates, logprobsAt } from '../../sequences/forward.js';
import type { AnswerRow, VerdictSequence } from '../../sequences/sequence.js';
import { accumulate, balanceOf, totalLoss } from '../../train/accumulate.js';
import { type BatchedStageOptions, batchedStage, stageBatches, withSize } from '../../train/batched-stage.js';
import type { OpenRun } from '../../train/method.js';
import type { StepPart, TrainingStage } from '../../train/stage.js';
import type { VerdictData } from '../../train/verdicts/data.js';
import type { VerdictDpoRunConfig } from './config.js';
import type { VerdictDpoRoles } from './roles.js';

export function dpoStage(
  open: OpenRun<VerdictDpoRunConfig, VerdictData, VerdictDpoRoles>,
  validate: BatchedStageOptions['validate'],
): TrainingStage {
  const { config, data, roles } = open;
  const settings = config.verdict_dpo;
  const sequences = data.sequences.train;
  const sizes = data.learnedSizes();
  const tokensOf = (i: number) => sizes[i] as number;
  const microBatchTokens = open.microBatchTokens('verdict_dpo');
  const { seed, max_tokens } = config.run;
  return batchedStage({
    name: 'verdict_dpo',
    batches: stageBatches(withSize(sizes), settings, { seed, tokensOf, tokens: max_tokens }),
    settings,
    parameters: roles.trained,
    best: selectionOf(config.eval_verdicts.metric_for_best_model, data.labels),
    validate,
    async gradients(chosen, _, report) {
      const batch = chosen.map((i) => sequences.get(i));
      const metrics = await preferRight({ roles, settings, microBatchTokens, report }, batch);
      return {
        metrics,
        shown: { accuracy: metrics.preference_accuracy },
        tokens: batch.reduce((sum, { ids }) => sum + ids.length, 0),
      };
    },
  });
}

async function preferRight(
  {
    roles,
    settings,
    microBatchTokens,
    report,
  }: {
    readonly roles: VerdictDpoRoles;
    readonly settings: VerdictDpoRunConfig['verdict_dpo'];
    readonly microBatchTokens: number;
    readonly report?: ((part: StepPart) => void) | undefined;
  },
  batch: readonly VerdictSequence[],
): Promise<{ loss: number; preference_accuracy: number; reward_margin: number; aux_loss?: number }> {
  const { decoder, role: policy, reference, trained } = roles;
  const { device } = decoder;
  const judged = ({ verdicts }: VerdictSequence) => verdicts.filter(({ label }) => label !== null);
  const sidesOf = (states: HiddenStates, group: readonly VerdictSequence[]) =>
    [true, false].map((right) =>
      answerLogprobs(
        states,
        group.map((sequence) =>
          judged(sequence).map(({ label, positive, negative }) =>
            (label === 1) === right ? positive : negative,
          ),
        ),
      ),
    ) as [Tensor, Tensor];
  const terms = await accumulate(
    batch,
    {
      device,
      microBatchTokens,
      sizeOf: ({ ids }) => ids.length,
      normaliser: (sequences) => sequences.flatMap(judged).length,
      trains: [trained],
      scope: 'policy',
      report,
      before: (group) =>
        device.scope(
          () => sidesOf(hiddenStates(reference.decoder, reference.role, group), group),
          'reference',
        ),
    },
    (group, total, [refChosen, refRejected]) => {
      const [chosen, rejected] = sidesOf(hiddenStates(decoder, policy, group), group);
      const weights = device.tensor(new Float32Array(chosen.size).fill(1 / total));
      const preferred = dpo(
        { chosen, rejected, refChosen, refRejected, weights },
        { beta: settings.beta, labelSmoothing: settings.label_smoothing },
      );
      return [{ ...preferred, share: chosen.size / total }];
    },
  );
  const mean = (name: 'accuracy' | 'margin') =>
    terms.reduce((sum, { term, statistics }) => sum + term.share * statistics[name], 0);
  return {
    loss: totalLoss(terms),
    preference_accuracy: mean('accuracy'),
    reward_margin: mean('margin'),
    ...balanceOf(terms),
  };
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
