/** Opens the judges that a configuration names, all behind the interface `StepJudge`. */

import type { Cluster } from '../../../cluster/cluster.js';
import { foundOnce } from '../../../cluster/exchange.js';
import { fileJudge } from '../../../eval/judges/file.js';
import { llmJudge } from '../../../eval/judges/llm.js';
import type { StepJudge } from '../../../eval/solving/judging.js';
import { oracleJudge } from '../../../eval/solving/oracle.js';
import { stepScores } from '../../../eval/solving/step-scores.js';
import { RunError } from '../../../run/error.js';
import type { OpenScorers } from '../../../train/method.js';
import type { RoundsConfig } from './config.js';

export interface OpenJudge extends StepJudge {
  /** Of an LLM: what it cost and did not answer. */
  report?(): Readonly<Record<string, number>>;
  dispose(): void;
}

/** Loads what judges in a run, or a classification model. */
type OpenJudged = (name: string) => Promise<OpenScorers>;

/** The judge that labels; undefined: steps get no labels. */
export async function openLabelJudge(
  { judge, run }: RoundsConfig,
  openScorers: OpenJudged,
  cluster?: Cluster | undefined,
): Promise<OpenJudge | undefined> {
  switch (judge.kind) {
    case 'none':
      return undefined;
    case 'oracle':
      return lasting(oracleJudge);
    case 'file':
      return lasting(await fileJudge(judge.path as string));
    case 'run':
      return runJudge(judge.path as string, openScorers);
    case 'llm':
      return serverJudge(judge, `${run.output_dir}/judge`, cluster);
  }
}

/** The judge that evaluates. */
export async function openEvaluationJudge(
  { eval: { judge, judge_run, judge_file, llm }, run }: RoundsConfig,
  openScorers: OpenJudged,
  cluster?: Cluster | undefined,
): Promise<OpenJudge | undefined> {
  switch (judge) {
    case 'none':
      return undefined;
    case 'oracle':
      return lasting(oracleJudge);
    case 'file':
      return lasting(await fileJudge(judge_file as string));
    case 'run':
      return runJudge(judge_run as string, openScorers);
    case 'llm':
      return serverJudge(llm, `${run.output_dir}/eval-judge`, cluster);
  }
}

/**
 * @param files the beginning of the names of its files: what it answered, unless the configuration names that, and what it cost
 * @param cluster rank 0 asks, and the others hear of it
 */
function serverJudge(
  endpoint: RoundsConfig['eval']['llm'],
  files: string,
  cluster?: Cluster | undefined,
): OpenJudge {
  const open = () =>
    llmJudge({
      ...endpoint,
      apiKey: process.env[endpoint.api_key_env],
      maxTokens: endpoint.max_tokens,
      requestsPerMinute: endpoint.requests_per_minute,
      tokenBudget: endpoint.token_budget,
      costBudget: endpoint.cost_budget,
      price: { input: endpoint.price_input, output: endpoint.price_output },
      cache: endpoint.cache ?? `${files}-cache.jsonl`,
      spending: `${files}-spending.jsonl`,
    });
  if (!cluster) return lasting(open());
  const asking = cluster.rank === 0 ? open() : undefined;
  return lasting({
    name: endpoint.model ?? 'llm',
    judge: (solutions, signal) =>
      foundOnce(cluster, async () => (await asking?.judge(solutions, signal)) ?? []),
    report: () => asking?.report?.() ?? {},
  });
}

const lasting = (judge: StepJudge & Pick<OpenJudge, 'report'>): OpenJudge => ({ ...judge, dispose() {} });

/** The model of another run that judges steps: verdict words, or a reward model of steps. */
async function runJudge(name: string, openScorers: OpenJudged): Promise<OpenJudge> {
  const { scorers, threshold, outcomesAlone, dispose } = await openScorers(name);
  const [scorer] = Object.values(scorers);
  if (!scorer || outcomesAlone) {
    dispose();
    throw new RunError(
      `${name} holds a reward model of outcomes, which judges no steps; name one of reward.type prm or joint`,
    );
  }
  const scores = stepScores(scorer, { name, ...(threshold === undefined ? {} : { threshold }) });
  return { name, judge: scores.judge, dispose };
}

/** Opened at the first question, so that it takes no memory while the policy learns. */
export function lazily(open: () => Promise<OpenJudge | undefined>): OpenJudge {
  let opened: Promise<OpenJudge | undefined> | undefined;
  let known: OpenJudge | undefined;
  const get = async () => {
    opened ??= open();
    known = await opened;
    return known;
  };
  return {
    name: 'judge',
    async judge(solutions, signal) {
      const judge = await get();
      return judge ? judge.judge(solutions, signal) : solutions.map(({ steps }) => steps.map(() => null));
    },
    report: () => known?.report?.() ?? {},
    dispose() {
      known?.dispose();
      opened = known = undefined;
    },
  };
}
