/** Held-out problems solved by the model as it is: a stage, a choice among parameters, and the report of a run. */
import type { Part } from '../../../data/split.js';
import { byName } from '../../../eval/groups.js';
import { flatMetrics, type SolvedGroups } from '../../../eval/solving/run-report.js';
import { grouped } from '../../../native/grouped.js';
import type { Evaluation } from '../../../train/method.js';
import { localSolutions } from '../../../train/solutions/local-solutions.js';
import type { SolutionSource } from '../../../train/solutions/solution-source.js';
import type { MakingStage, SaveSettings, StageEntry } from '../../../train/stage.js';
import { artefactRows } from './candidates.js';
import {
  type EvaluatedRow,
  type EvaluateStageOptions,
  evaluateStage,
  evaluationMetrics,
} from './evaluation-stage.js';
import { evaluationJudge } from './judges.js';
import type { AskingRun } from './run.js';

export function solutionsOf(
  { config, data, roles, tokenizer, cacheBytes }: AskingRun,
  how: 'greedy' | 'sampled' = 'sampled',
): SolutionSource {
  const { sampling } = config;
  const stop = [...sampling.stop, ...data.asked.prompt.stop];
  const greedy = { temperature: 0, top_p: 1, top_k: 0, min_p: 0 };
  return localSolutions({
    decoder: roles.decoder,
    role: roles.role,
    tokenizer,
    sampling: { ...sampling, stop, ...(how === 'greedy' ? greedy : {}) },
    seed: config.run.seed,
    cacheBytes,
  });
}

/** Test problems, solved by model `i`: M0 is the one that the run begins with. */
export const evaluation = (open: AskingRun, i: number, settings: SaveSettings): StageEntry =>
  solved(open, { name: `eval-${i}`, part: 'test', settings, ...inFull(open) });

const VALIDATION = 'eval-validation';

/** The stage in which the last model solves the validation problems, by which a sweep may select. */
export const validation = (open: AskingRun, settings: SaveSettings): StageEntry[] =>
  open.data.asked.parts.validation.problems.length === 0
    ? []
    : [solved(open, { name: VALIDATION, part: 'validation', settings, ...inFull(open) })];

/** Sampled, and judged step by step. */
const inFull = ({ config, device }: AskingRun) => ({
  samples: config.eval_solving.num_generations,
  judge: evaluationJudge(config, device),
});

function solved(
  open: AskingRun,
  {
    part,
    ...how
  }: Pick<EvaluateStageOptions, 'name' | 'settings' | 'samples' | 'judge'> & { readonly part: Part },
): MakingStage {
  const sources = { greedy: solutionsOf(open, 'greedy'), source: solutionsOf(open) };
  return evaluateStage({ ...open.data.asked.parts[part], ...sources, ...how });
}

/** Share of validation problems whose greedy solution is right: chooses among the parameters of a round. */
export async function passAt1(
  open: AskingRun,
  { settings, signal }: { readonly settings: SaveSettings; readonly signal: AbortSignal },
): Promise<Record<string, number> | undefined> {
  const { problems } = open.data.asked.parts.validation;
  if (problems.length === 0) return {};
  const how = { samples: 0, judge: undefined, settings };
  const stage = solved(open, { name: 'validation', part: 'validation', ...how });
  const opened = stage.open();
  let right = 0;
  for (let step = 0; step < stage.steps; step++) {
    const outcome = await opened.step(step, signal);
    if (!outcome) return undefined;
    right += outcome.rows.filter((row) => row.right).length;
  }
  return { pass_at_1: right / problems.length };
}

/** eval.json, and by it the table, of M0 … MN. */
export async function solvedReport(open: AskingRun, last: number, tokens: number): Promise<Evaluation> {
  const { config, run, data } = open;
  const models: Record<string, SolvedGroups> = {};
  const groups = async (name: string, part: Part): Promise<SolvedGroups> => {
    const { problems } = data.asked.parts[part];
    const rows = await artefactRows<EvaluatedRow>(run.artefact(name).path);
    const named = [...grouped(rows, ({ problem }) => problems[problem]?.group)].sort(byName);
    return Object.fromEntries([
      ['all', evaluationMetrics(rows)],
      ...named.map(([group, own]) => [group, evaluationMetrics(own)]),
    ]);
  };
  for (let i = 0; i <= last; i++) models[`M${i}`] = await groups(`eval-${i}`, 'test');
  const trained = models[`M${last}`] as SolvedGroups;
  return {
    metrics: Object.fromEntries(
      Object.entries(trained.all ?? {}).map(([name, { value }]) => [name.replace(/[@ ]/g, '_'), value]),
    ),
    solved: {
      method: config.method,
      unit: 'problems',
      data: { problems: data.asked.parts.test.problems.length, trained_tokens: tokens },
      metrics: flatMetrics(trained),
      ...(data.asked.parts.validation.problems.length > 0
        ? { metrics_validation: flatMetrics(await groups(VALIDATION, 'validation')) }
        : {}),
      models,
    },
  };
}
