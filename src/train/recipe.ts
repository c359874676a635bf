/** `steptrain run`: from a complete configuration to a trained model and its evaluation. */
import type { PretrainRunConfig, RunConfig, SftRunConfig } from '../config/schema.js';
import type { LoadReport } from '../data/load.js';
import type { StepRecord } from '../data/record.js';
import { verdictTokenizer } from '../data/verdict.js';
import { baselineMetrics, countConfusion, rocAuc, verdictMetrics } from '../eval/metrics.js';
import type { EvalReport } from '../eval/report.js';
import { type JudgedVerdict, judgeVerdicts } from '../eval/verdicts.js';
import { addon } from '../native/addon.js';
import type { RunDirectory } from '../run/directory.js';
import { configuredRecords, configuredTokenizer } from '../run/inputs.js';
import type { RunResult } from '../run/result.js';
import type { Device } from '../runtime/device.js';
import { openDevice } from '../runtime/device.js';
import { type LoopOptions, trainLoop } from './loop.js';
import { pretrainSequences } from './pretrain.js';
import { type VerdictSequence, verdictSequence } from './sequence.js';
import { createTrainee, type Trainee } from './trainee.js';

export async function runRecipe(
  config: RunConfig,
  run: RunDirectory,
  signal: AbortSignal,
  options: { readonly resume: boolean },
): Promise<RunResult> {
  const device = openDevice(
    deviceName(config.run.device),
    config.run.threads > 0 ? { threads: config.run.threads } : {},
  );
  try {
    const loop = {
      seed: config.run.seed,
      loggingSteps: config.run.logging_steps,
      resume: options.resume,
      signal,
    };
    return config.method === 'sft'
      ? await runSft(config, device, run, loop)
      : await runPretrain(config, device, run, loop);
  } finally {
    device.dispose();
  }
}

/** `auto` is the first GPU where the addon finds one. */
function deviceName(name: string): string {
  if (name !== 'auto') return name;
  return addon().cudaDevices()?.[0] ?? 'cpu';
}

type LoopContext = Omit<LoopOptions, 'optimization'>;

async function runSft(
  config: SftRunConfig,
  device: Device,
  run: RunDirectory,
  loop: LoopContext,
): Promise<RunResult> {
  const tokenizer = await configuredTokenizer(config.model);
  const { parts, reports } = await configuredRecords(config.data);
  const verdicts = verdictTokenizer(config.prompt, tokenizer);
  const labels = countLabels(parts.train);
  const weigh =
    config.sft.class_weight === 'balanced'
      ? (label: 1 | 0) => labels.n / (2 * (label === 1 ? labels.positive : labels.negative))
      : () => 1;
  let tooLong = 0;
  const sequencesOf = (records: readonly StepRecord[], offset = 0): VerdictSequence[] =>
    records.map((record, i) => {
      const solution = verdicts.solution(record, { maxLength: config.data.max_length });
      tooLong += solution.tooLong;
      return verdictSequence(solution, verdicts, offset + i, weigh);
    });
  const train = sequencesOf(parts.train);
  const validation = sequencesOf(limited(parts.validation, config.eval.max_samples));
  const test = sequencesOf(limited(parts.test, config.eval.max_samples));
  if (tooLong > 0)
    console.error(`${tooLong} steps lie beyond data.max_length ${config.data.max_length} and get no verdict`);

  const trainee = await createTrainee(device, {
    model: config.model,
    lora: config.lora,
    tokenizer,
    seed: config.run.seed,
    gradientCheckpointing: config.run.gradient_checkpointing,
  });
  try {
    const judge = (sequences: readonly VerdictSequence[]) =>
      judgeVerdicts(trainee.decoder, trainee.role, sequences, {
        threshold: config.eval.threshold,
        microBatchTokens: config.sft.micro_batch_tokens,
      });
    const report = (judged: readonly JudgedVerdict[]) =>
      evaluationReport(config, judged, labels, reports, { train: train.length, test: test.length });
    const result = await trainLoop(trainee, train, run, {
      ...loop,
      optimization: config.sft,
      validate: async () => validationFigures(report(await judge(validation))),
    });
    if (result.status === 'interrupted') return result;
    await trainee.save((name) => run.file(name));
    const judged = await judge(test);
    const evaluation = report(judged);
    run.metrics.append({ step: result.step, ...prefixed('test', validationFigures(evaluation)) });
    return { ...result, evaluation };
  } finally {
    trainee.dispose();
  }
}

async function runPretrain(
  config: PretrainRunConfig,
  device: Device,
  run: RunDirectory,
  loop: LoopContext,
): Promise<RunResult> {
  const tokenizer = await configuredTokenizer(config.model);
  const { parts } = await configuredRecords(config.data);
  const learn = config.pretrain.loss_on === 'answers' ? 'results' : 'steps';
  const sequencesOf = (records: readonly StepRecord[]) =>
    pretrainSequences(records, tokenizer, learn, config.data.max_length);
  const train = sequencesOf(parts.train);
  const validation = sequencesOf(limited(parts.validation, config.eval.max_samples));
  const trainee: Trainee = await createTrainee(device, {
    model: config.model,
    lora: 'none',
    tokenizer,
    seed: config.run.seed,
    gradientCheckpointing: config.run.gradient_checkpointing,
  });
  const { answerAccuracy } = await import('./pretrain.js');
  try {
    const validate = async () => answerAccuracy(trainee, validation, config.pretrain.micro_batch_tokens);
    const result = await trainLoop(trainee, train, run, { ...loop, optimization: config.pretrain, validate });
    if (result.status === 'interrupted') return result;
    await trainee.save((name) => run.file(name));
    const figures = await validate();
    run.metrics.append({ step: result.step, ...figures });
    console.error(
      `held-out answers: ${(100 * figures.token_accuracy).toFixed(2)} % of tokens right, loss ${figures.validation_loss.toFixed(4)}`,
    );
    return result;
  } finally {
    trainee.dispose();
  }
}

interface LabelCounts {
  readonly n: number;
  readonly positive: number;
  readonly negative: number;
}

function countLabels(records: readonly StepRecord[]): LabelCounts {
  const labels = records
    .flatMap(({ steps }) => steps.map(({ label }) => label))
    .filter((label) => label !== null);
  const positive = labels.filter((label) => label === 1).length;
  return { n: labels.length, positive, negative: labels.length - positive };
}

function evaluationReport(
  config: SftRunConfig,
  judged: readonly JudgedVerdict[],
  trained: LabelCounts,
  reports: readonly LoadReport[],
  solutions: { readonly train: number; readonly test: number },
): EvalReport {
  const { confusion, invalid } = countConfusion(judged, { invalidAsWrong: config.eval.invalid_as_wrong });
  const positives = judged.filter(({ label }) => label === 1).length;
  const auc = rocAuc(
    judged.map(({ probability }) => probability),
    judged.map(({ label }) => label),
  );
  return {
    method: config.method,
    data: {
      source: config.data.source,
      files: reports.flatMap(({ files }) => files),
      train_solutions: solutions.train,
      train_steps: trained.n,
      train_positive_share: trained.n > 0 ? trained.positive / trained.n : 0,
      test_solutions: solutions.test,
      test_steps: judged.length,
    },
    metrics: { ...verdictMetrics(confusion), invalid, ...(auc === undefined ? {} : { auc }) },
    baselines: baselineMetrics({
      positives,
      negatives: judged.length - positives,
      positivePrior: trained.n > 0 ? trained.positive / trained.n : 0.5,
    }),
  };
}

function validationFigures({ metrics }: EvalReport): Record<string, number> {
  const { f1_macro, acc_pos, acc_neg, balanced_accuracy, auc } = metrics;
  return { f1_macro, acc_pos, acc_neg, balanced_accuracy, ...(auc === undefined ? {} : { auc }) };
}

function prefixed(prefix: string, figures: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(figures).map(([name, value]) => [`${prefix}_${name}`, value]));
}

function limited<T>(records: readonly T[], most: number | 'all'): readonly T[] {
  return most === 'all' ? records : records.slice(0, most);
}
