/** `method: step_kto`: rounds of sampling, labelling, training and evaluation, or one training on labelled answers. */
import { inMemory } from '../../data/dataset.js';
import type { LoadReport } from '../../data/load.js';
import { problemKey } from '../../data/overlap.js';
import { objectRows } from '../../data/rows.js';
import { PARTS, type Part } from '../../data/split.js';
import { summarizeTrainingData } from '../../data/summary.js';
import { flatMetrics, type SolvedGroups } from '../../eval/solving/run-report.js';
import { DataError } from '../../files/data-error.js';
import { baseDirectory } from '../../models/base.js';
import { loadDecoder } from '../../models/load.js';
import type { StepRecord } from '../../records/record.js';
import type { Evaluation, Method, OpenRun, RunData } from '../../train/method.js';
import { offlinePreview } from '../../train/offline/data.js';
import type { OfflineItem } from '../../train/offline/items.js';
import { judgedAnswers } from '../../train/offline/kinds.js';
import { offlineMethod } from '../../train/offline/method.js';
import { stepKto } from '../../train/offline/objectives/step-kto.js';
import { type OfflinePlan, referencedItems, trainingPlan } from '../../train/offline/plan.js';
import { referenceStage, referenceSums } from '../../train/offline/reference.js';
import { offlineStage } from '../../train/offline/stage.js';
import { answerTokenizer } from '../../train/offline/tokens.js';
import { configuredProblems, type RunProblem } from '../../train/solutions/problems.js';
import { type SolutionPrompts, solutionPrompts } from '../../train/solutions/prompts.js';
import { localSampler, type SolutionSampler } from '../../train/solutions/sampler.js';
import type { StageEntry, TrainingStage } from '../../train/stage.js';
import { createTrainee, type Trainee } from '../../train/trainee.js';
import type { CandidateRow } from './candidates.js';
import type { StepKtoRunConfig } from './config.js';
import { type EvaluatedRow, evaluateStage, evaluationMetrics } from './evaluate.js';
import { lazily, openEvaluationJudge, openLabelJudge } from './judges.js';
import { labelStage } from './label.js';
import { artefactRows } from './rows.js';
import { roundProblems, sampleStage } from './sample.js';

interface IterationData extends RunData {
  readonly problems: Readonly<Record<Part, readonly RunProblem[]>>;
  readonly prompts: Readonly<Record<Part, SolutionPrompts>>;
}

type IterationRun = OpenRun<StepKtoRunConfig, IterationData, Trainee>;

const kind = ({ step_kto }: StepKtoRunConfig) => judgedAnswers(step_kto);

/** M0 where every parameter is trained is a second copy, loaded while a round asks it. */
function loadsReference({ step_kto, lora }: StepKtoRunConfig): boolean {
  return step_kto.reference === 'm0' && lora === 'none' && step_kto.iterations > 0;
}

/** `iterations: 0`. */
const once = offlineMethod<StepKtoRunConfig>({
  kind,
  stage: ({ step_kto: settings }) => ({
    name: 'step_kto',
    settings,
    objective: (train) => stepKto(settings, train),
  }),
});

export const stepKtoMethod: Method<StepKtoRunConfig> = {
  data: (config, tokenizer, signal) =>
    config.step_kto.iterations === 0
      ? once.data(config, tokenizer, signal)
      : iterationData(config, tokenizer),
  preview: (config, tokenizer) => offlinePreview(config, tokenizer, kind(config)),
  memory: (config) => [
    ...once.memory(config),
    ...(loadsReference(config) ? [{ role: 'reference', held: 'frozen' } as const] : []),
  ],
  sampling: ({ step_kto, data, sampling }) =>
    step_kto.iterations === 0 ? undefined : { longest: data.max_length, rows: sampling.max_rows },
  roles: ({ device, config: { model, lora, run }, tokenizer }) =>
    createTrainee(device, {
      model,
      lora,
      tokenizer,
      seed: run.seed,
      gradientCheckpointing: run.gradient_checkpointing,
    }),
  stages: (open) =>
    open.config.step_kto.iterations === 0
      ? once.stages(open as Parameters<typeof once.stages>[0])
      : iterationStages(open as IterationRun),
  // The first round's candidates and their labels come from the base alone, whatever is learned from them.
  shared: ({ step_kto: { iterations } }) =>
    iterations === 0
      ? []
      : ['eval-0', 'samples-1', 'labels-1'].map((stage) => ({ stage, unread: ['step_kto'] })),
  save: (open, stages) => once.save(open as Parameters<typeof once.save>[0], stages),
  evaluate: (open, trained, signal) =>
    open.config.step_kto.iterations === 0
      ? once.evaluate(open as Parameters<typeof once.evaluate>[0], trained, signal)
      : iterationReport(open as IterationRun, trained.tokens),
};

async function iterationData(
  config: StepKtoRunConfig,
  tokenizer: Parameters<typeof once.data>[1],
): Promise<IterationData> {
  const { data, question, sampling } = config;
  const { parts, reports, unanswered } = await configuredProblems(data);
  if (unanswered > 0) console.error(`${unanswered} rows have no answer and are left out`);
  const limit = config.eval.max_samples;
  const problems = Object.fromEntries(
    PARTS.map((part) => [
      part,
      part === 'train' || limit === 'all' ? parts[part] : parts[part].slice(0, limit),
    ]),
  ) as Record<Part, readonly RunProblem[]>;
  const promptOptions = {
    tokenizer,
    template: question.template,
    maxLength: data.max_length,
    maxNewTokens: sampling.max_new_tokens,
  };
  const prompts = Object.fromEntries(
    PARTS.map((part) => [part, solutionPrompts(problems[part], promptOptions)]),
  ) as Record<Part, SolutionPrompts>;
  for (const part of PARTS) {
    const tooLong = prompts[part].prompts.filter((prompt) => prompt === undefined).length;
    if (tooLong > 0)
      console.error(
        `${tooLong} of ${problems[part].length} ${part} problems leave no room for ${sampling.max_new_tokens} tokens within ` +
          `data.max_length ${data.max_length} and are left out`,
      );
  }
  const summarized = ({ problem }: RunProblem) => ({
    key: problemKey(problem),
    labels: [],
    text: () => problem,
  });
  return {
    problems,
    prompts,
    summary: summarizeTrainingData({
      train: problems.train.map(summarized),
      validation: problems.validation.map(summarized),
      test: problems.test.map(summarized),
    }),
    reports: reports as readonly LoadReport[],
    close() {},
  };
}

function iterationStages(open: IterationRun): StageEntry[] {
  const { iterations } = open.config.step_kto;
  return [evaluation(open, 0), ...Array.from({ length: iterations }, (_, i) => round(open, i + 1)).flat()];
}

/** Samples, labels, log-probs of the reference, training and evaluation of round `i`, from 1. */
function round(open: IterationRun, i: number): StageEntry[] {
  const { config, data, roles, run, tokenizer } = open;
  const { step_kto: settings, sampling } = config;
  const names = {
    samples: `samples-${i}`,
    labels: `labels-${i}`,
    reference: `reference-${i}`,
    training: `step_kto-${i}`,
  };
  const microBatchTokens = open.microBatchTokens('step_kto');
  const seed = (config.run.seed + i) >>> 0;
  const path = (name: string) => run.artefact(name).path;
  const planned = async (): Promise<OfflinePlan> => {
    const records = await artefactRows<StepRecord>(path(names.labels));
    const items = kind(config)
      .items(records, answerTokenizer(tokenizer, config.question.template))
      .filter((item) =>
        item.answers.every(({ ids }) => item.prompt.length + ids.length <= config.data.max_length),
      );
    if (items.length === 0)
      throw new DataError(
        'file',
        `round ${i} has no labelled answer to learn from; see ${names.labels}.jsonl and ${names.samples}.jsonl`,
      );
    const objective = stepKto(settings, inMemory(items));
    const options = { pairs: objective.needsMismatched, maxLength: config.data.max_length, settings, seed };
    return trainingPlan(inMemory<OfflineItem>(items), options);
  };
  const judge = lazily(() => openLabelJudge(config, open.openScorers));
  return [
    sampleStage({
      name: names.samples,
      iteration: i,
      sampler: samplerOf(open),
      prompts: data.prompts.train.prompts,
      problems: roundProblems(data.problems.train.length, {
        iteration: i,
        size: sampling.problems_per_iteration,
        fresh: sampling.fresh_problems,
        seed: config.run.seed,
      }),
      settings,
    }),
    {
      name: names.labels,
      prepare: async () =>
        labelStage({
          name: names.labels,
          source: names.samples,
          rows: await artefactRows<CandidateRow>(path(names.samples)),
          problems: data.problems.train,
          judge,
          selection: sampling,
          settings,
        }),
    },
    {
      name: names.reference,
      prepare: async () =>
        referenceStage({
          name: names.reference,
          decoder: roles.decoder,
          // The model that the round begins with, or the base without its adapter.
          role: settings.reference === 'm0' ? {} : roles.role,
          ...(loadsReference(config)
            ? {
                load: () =>
                  loadDecoder(open.device, baseDirectory(config.model.base as string), {
                    dtype: config.model.dtype,
                  }),
              }
            : {}),
          items: referencedItems(await planned()),
          microBatchTokens,
          settings,
        }),
    },
    {
      name: names.training,
      async prepare() {
        const plan = await planned();
        const stage = offlineStage({
          name: names.training,
          decoder: roles.decoder,
          role: roles.role,
          parameters: roles.trained,
          objective: stepKto(settings, plan.items),
          plan,
          references: await referenceSums(objectRows(path(names.reference)), plan.references),
          settings,
          microBatchTokens,
          seed,
          best: 'pass_at_1',
          validate: (signal) => passAt1(open, signal),
        });
        return keeping(stage, () => roles.save((name) => run.file(`${name}-${i}`)));
      },
    },
    evaluation(open, i),
  ];
}

/** The model of each round is kept. */
function keeping(stage: TrainingStage, save: () => Promise<void>): TrainingStage {
  return { ...stage, open: () => ({ ...stage.open(), end: save }) };
}

function evaluation(open: IterationRun, i: number): StageEntry {
  const { config, data } = open;
  const judge = lazily(() => openEvaluationJudge(config, open.openScorers));
  return evaluateStage({
    name: `eval-${i}`,
    problems: data.problems.test,
    prompts: data.prompts.test.prompts,
    greedy: samplerOf(open, 'greedy'),
    sampler: samplerOf(open),
    samples: config.eval.num_generations,
    judge: config.eval.judge === 'none' ? undefined : judge,
    settings: config.step_kto,
  });
}

function samplerOf(
  { config, data, roles, tokenizer, cacheBytes }: IterationRun,
  how: 'greedy' | 'sampled' = 'sampled',
): SolutionSampler {
  const { sampling } = config;
  const stop = [...sampling.stop, ...data.prompts.train.stop];
  const greedy = { temperature: 0, top_p: 1, top_k: 0, min_p: 0 };
  return localSampler({
    decoder: roles.decoder,
    role: roles.role,
    tokenizer,
    sampling: { ...sampling, stop, ...(how === 'greedy' ? greedy : {}) },
    seed: config.run.seed,
    cacheBytes,
  });
}

/** Share of validation problems whose greedy solution is right: chooses among the parameters of a round. */
async function passAt1(open: IterationRun, signal: AbortSignal): Promise<Record<string, number> | undefined> {
  const { prompts } = open.data.prompts.validation;
  const asked = prompts.flatMap((prompt) => prompt ?? []);
  if (asked.length === 0) return {};
  const stage = evaluateStage({
    name: 'validation',
    problems: open.data.problems.validation,
    prompts,
    greedy: samplerOf(open, 'greedy'),
    sampler: samplerOf(open),
    samples: 0,
    judge: undefined,
    settings: open.config.step_kto,
  });
  const opened = stage.open();
  let right = 0;
  for (let step = 0; step < stage.steps; step++) {
    const outcome = await opened.step(step, signal);
    if (!outcome) return undefined;
    right += outcome.metrics.right ?? 0;
  }
  return { pass_at_1: right / asked.length };
}

/** eval.json, and by it the table, of M0 … MN. */
async function iterationReport(open: IterationRun, tokens: number): Promise<Evaluation> {
  const { config, run, data } = open;
  const { iterations } = config.step_kto;
  const models: Record<string, SolvedGroups> = {};
  for (let i = 0; i <= iterations; i++)
    models[`M${i}`] = {
      all: evaluationMetrics(await artefactRows<EvaluatedRow>(run.artefact(`eval-${i}`).path)),
    };
  const metrics = flatMetrics(models[`M${iterations}`] as SolvedGroups);
  return {
    metrics: Object.fromEntries(
      Object.entries(metrics).map(([name, value]) => [name.replace(/[@ ]/g, '_'), value]),
    ),
    solved: {
      method: config.method,
      unit: 'problems',
      data: { problems: data.problems.test.length, trained_tokens: tokens },
      metrics,
      models,
    },
  };
}
