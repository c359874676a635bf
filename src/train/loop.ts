/**
 * The supervised training loop: epochs of shuffled sequences, optimizer batches by tokens, micro-batches that change
 * memory and never the loss, AdamW, logging, checkpoints, and a stop that loses nothing.
 */
import { Tape } from '../autograd/tape.js';
import type { OptimizationConfig } from '../config/schema.js';
import { StepTrainError } from '../native/errors.js';
import { nll } from '../objectives/nll.js';
import type { RunDirectory } from '../run/directory.js';
import { createProgress } from '../run/progress.js';
import type { Tensor } from '../runtime/tensor.js';
import { AdamW } from './adamw.js';
import { epochOrder, groupByTokens } from './batching.js';
import { type LoopState, readLoopCheckpoint, writeLoopCheckpoint } from './checkpoint.js';
import { scoreRows } from './forward.js';
import { learningRateAt } from './schedule.js';
import type { TrainingSequence } from './sequence.js';
import type { Trainee } from './trainee.js';

export interface LoopOptions {
  readonly optimization: OptimizationConfig;
  readonly seed: number;
  readonly loggingSteps: number;
  readonly resume: boolean;
  readonly signal: AbortSignal;
  /** Figures of the validation rows, logged every `eval_steps`. */
  readonly validate?: () => Promise<Readonly<Record<string, number>>>;
}

export interface LoopResult {
  readonly status: 'finished' | 'interrupted';
  readonly step: number;
}

/** Skipped steps in a row after which a run stops. */
const MAX_SKIPPED_IN_A_ROW = 5;

export async function trainLoop(
  trainee: Trainee,
  sequences: readonly TrainingSequence[],
  run: RunDirectory,
  options: LoopOptions,
): Promise<LoopResult> {
  const { optimization: settings, seed, signal } = options;
  const { device } = trainee.decoder;
  const steps = planSteps(sequences, settings, seed);
  const optimizer = new AdamW(trainee.parameters, {
    beta1: settings.adam_beta1,
    beta2: settings.adam_beta2,
    epsilon: settings.adam_epsilon,
    weightDecay: settings.weight_decay,
    maxGradNorm: settings.max_grad_norm,
  });
  const schedule = {
    learningRate: settings.learning_rate,
    type: settings.lr_scheduler_type,
    warmupRatio: settings.warmup_ratio,
    totalSteps: steps.total,
  };
  const here = {
    isa: device.info().isa,
    plan: { tokens_per_step: settings.tokens_per_step, micro_batch_tokens: settings.micro_batch_tokens },
  };
  let state: LoopState = { step: 0, updates: 0, skipped: 0, tokens: 0, ...here };
  const checkpoint = options.resume ? await run.latestCheckpoint() : undefined;
  run.rewind(checkpoint);
  if (checkpoint) state = await readLoopCheckpoint(checkpoint.path, trainee.parameters, optimizer, here);

  let skippedInARow = 0;
  let saved = checkpoint?.step ?? -1;
  const save = async () => {
    if (saved === state.step) return;
    await run.saveCheckpoint(
      state.step,
      (folder) => writeLoopCheckpoint(folder, trainee.parameters, optimizer, state),
      { keep: settings.save_total_limit },
    );
    saved = state.step;
  };
  const progress = createProgress({ total: steps.total, start: state.step });
  try {
    while (state.step < steps.total && !signal.aborted) {
      const began = performance.now();
      const batch = steps.batch(state.step).map((i) => sequences[i] as TrainingSequence);
      const tokens = batch.reduce((sum, { ids }) => sum + ids.length, 0);
      const learningRate = learningRateAt(state.step, schedule);
      const { loss, targets } = await accumulate(trainee, batch, settings.micro_batch_tokens, {
        seed,
        step: state.step,
      });
      const { gradNorm, nonFinite } = await optimizer.step(learningRate);
      if (nonFinite || !Number.isFinite(loss)) {
        skippedInARow++;
        const culprit = await nonFiniteGradient(trainee);
        trainee.parameters.zeroGrads();
        progress.note(
          `step ${state.step + 1}: loss ${loss}, gradient of ${culprit} is not finite; step skipped`,
        );
        if (skippedInARow >= MAX_SKIPPED_IN_A_ROW) {
          throw new StepTrainError(
            'E_NONFINITE',
            `${skippedInARow} steps in a row had a gradient that is not finite, last in ${culprit}; ` +
              (saved >= 0 ? `the checkpoint of step ${saved} is good` : 'there is no checkpoint yet') +
              '; lower the learning rate or look at the data of these steps',
          );
        }
      } else {
        skippedInARow = 0;
      }
      state = {
        ...state,
        step: state.step + 1,
        updates: optimizer.steps,
        skipped: state.skipped + (nonFinite ? 1 : 0),
        tokens: state.tokens + tokens,
      };
      const seconds = (performance.now() - began) / 1000;
      const last = state.step === steps.total;
      if (!nonFinite && (state.step % options.loggingSteps === 0 || last)) {
        run.metrics.append({
          step: state.step,
          epoch: steps.epochAt(state.step),
          loss,
          grad_norm: gradNorm,
          learning_rate: learningRate,
          tokens: state.tokens,
          targets,
          skipped: state.skipped,
          tokens_per_second: tokens / seconds,
        });
      }
      progress.update(state.step, { loss, 'tokens/s': tokens / seconds });
      if (settings.eval_steps > 0 && state.step % settings.eval_steps === 0 && options.validate && !last) {
        run.metrics.append({ step: state.step, ...(await options.validate()) });
      }
      if (settings.save_steps > 0 && state.step % settings.save_steps === 0) await save();
    }
    await save();
  } finally {
    progress.finish();
    optimizer.dispose();
  }
  return { status: state.step < steps.total ? 'interrupted' : 'finished', step: state.step };
}

/** Forward and backward of one optimizer batch; gradients are added into the parameters' buffers. */
async function accumulate(
  trainee: Trainee,
  batch: readonly TrainingSequence[],
  microBatchTokens: number,
  at: { readonly seed: number; readonly step: number },
): Promise<{ readonly loss: number; readonly targets: number }> {
  const { decoder, role } = trainee;
  const { device } = decoder;
  const all = batch.flatMap(({ targets }) => targets);
  const total = all.reduce((sum, { weight }) => sum + weight, 0);
  trainee.parameters.zeroGrads();
  const losses: Tensor[] = [];
  for (const group of groupByTokens(batch, ({ ids }) => ids.length, microBatchTokens)) {
    const weights = Float32Array.from(
      group.flatMap(({ targets }) => targets.map(({ weight }) => weight / total)),
    );
    const tape = new Tape(device);
    const loss = device.scope(() =>
      tape.run(() => {
        const items = group.map((sequence) => ({ sequence, rows: sequence.targets }));
        const { logprobs } = scoreRows(decoder, { ...role, dropout: at }, items);
        return nll(logprobs, device.tensor(weights));
      }),
    );
    tape.backward([[loss, 1]]);
    tape.dispose();
    losses.push(loss);
    // One micro-batch at a time in the queue: memory is freed in its order, and the event loop gets its turn.
    await device.synchronize();
  }
  const values = await Promise.all(losses.map((loss) => loss.readFloats()));
  for (const loss of losses) loss.dispose();
  return { loss: values.reduce((sum, [value]) => sum + (value as number), 0), targets: all.length };
}

async function nonFiniteGradient(trainee: Trainee): Promise<string> {
  const { device, list } = trainee.parameters;
  for (const { name, grad } of list) {
    const { stats } = device.op('finite', { x: grad });
    const [, count] = await (stats as Tensor).readFloats();
    stats?.dispose();
    if (count !== 0) return name;
  }
  return 'no parameter';
}

/** Which sequences make up each step. Epoch e is the same for every run with this seed, whatever came before. */
function planSteps(sequences: readonly TrainingSequence[], settings: OptimizationConfig, seed: number) {
  const usable = sequences.flatMap((sequence, i) => (sequence.targets.length > 0 ? [i] : []));
  if (usable.length === 0) {
    throw new StepTrainError(
      'E_DATA',
      'no training sequence has a token to learn; check labels, data.max_length and the prompt',
    );
  }
  const batches: number[][] = [];
  const ends: number[] = [];
  const limit = settings.max_steps > 0 ? settings.max_steps : Number.POSITIVE_INFINITY;
  for (let epoch = 0; epoch < settings.num_train_epochs && batches.length < limit; epoch++) {
    const order = Array.from(epochOrder(usable.length, seed, epoch), (i) => usable[i] as number);
    const share = Math.min(1, settings.num_train_epochs - epoch);
    const groups = groupByTokens(
      order,
      (i) => (sequences[i] as TrainingSequence).ids.length,
      settings.tokens_per_step,
    );
    batches.push(...groups.slice(0, Math.max(1, Math.round(share * groups.length))));
    ends.push(batches.length);
  }
  const total = Math.min(limit, batches.length);
  return {
    total,
    batch: (step: number) => batches[step] as number[],
    epochAt: (step: number) => {
      const epoch = ends.findIndex((end) => step <= end);
      const before = epoch > 0 ? (ends[epoch - 1] as number) : 0;
      return epoch + (step - before) / ((ends[epoch] as number) - before);
    },
  };
}
