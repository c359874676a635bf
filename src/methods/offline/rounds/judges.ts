/** The judges that a configuration names, opened at their first question. */
import type { Cluster } from '../../../cluster/cluster.js';
import { foundOnce } from '../../../cluster/exchange.js';
import type { Segmentation } from '../../../records/segment.js';
import { admitScorer } from '../../../rewards/gate.js';
import type { Device } from '../../../runtime/device.js';
import { processesOf } from '../../../runtime/processes.js';
import { labelFile } from '../../../scoring/files.js';
import { openScorer } from '../../../scoring/open.js';
import { type Scorer, scorer, verdictsIn } from '../../../scoring/scorer.js';
import { llmJudge } from '../../../scoring/server/llm.js';
import type { RoundsConfig } from './config.js';

/** The judge that labels, other than the model itself; undefined: steps get no labels. */
export function labelJudge({ judge, run }: RoundsConfig, device: Device): RoundJudge | undefined {
  const admitted =
    judge.kind === 'run' ? () => admitScorer(judge.path as string, run.accept_weak_reward) : undefined;
  return opened(judge.kind, { ...judge, files: `${run.output_dir}/judge` }, device, admitted);
}

/** The judge that evaluates. */
export function evaluationJudge(
  { eval_solving: { judge, judge_run, judge_file, llm }, run }: RoundsConfig,
  device: Device,
): RoundJudge | undefined {
  const path = judge === 'run' ? judge_run : judge_file;
  return opened(judge, { ...llm, path, files: `${run.output_dir}/eval-judge` }, device);
}

type Endpoint = RoundsConfig['eval_solving']['llm'] & {
  readonly path?: string | undefined;
  /** Prefix of the names of its files: its answers, unless the configuration names that file, and its costs. */
  readonly files: string;
};

function opened(
  kind: RoundsConfig['judge']['kind'],
  { path = '', files, ...endpoint }: Endpoint,
  device: Device,
  admitted?: () => Promise<void>,
): RoundJudge | undefined {
  if (kind === 'none') return undefined;
  return lazily(async () => {
    await admitted?.();
    if (kind === 'file') return labelFile(path);
    if (kind !== 'llm') return openScorer(device, kind === 'run' ? path : kind, { unit: 'step' });
    const asked = () =>
      llmJudge({
        ...endpoint,
        apiKey: process.env[endpoint.api_key_env],
        maxTokens: endpoint.max_tokens,
        requestsPerMinute: endpoint.requests_per_minute,
        tokenBudget: endpoint.token_budget,
        cache: endpoint.cache ?? `${files}-cache.jsonl`,
        spending: `${files}-spending.jsonl`,
      });
    const cluster = processesOf(device)?.cluster;
    return cluster ? askedOnce(endpoint.model ?? 'llm', cluster, asked) : asked();
  });
}

/** Rank 0 asks, and the others hear of it. */
function askedOnce(name: string, cluster: Cluster, open: () => Scorer): Scorer {
  const asking = cluster.rank === 0 ? open() : undefined;
  return scorer({
    name,
    score: (solutions, options) => foundOnce(cluster, async () => asking?.score(solutions, options)),
    report: () => asking?.report?.() ?? {},
    dispose: () => asking?.dispose(),
  });
}

/** A judge that may be opened late. */
export interface RoundJudge extends Scorer {
  /** The rule by which the opened judge cuts a text into steps. Default: `segmentation`. */
  rule?(): Promise<Segmentation | undefined>;
}

/** The rule by which a judge's texts are cut into steps; undefined: paragraphs, or lines. */
export const ruleOf = async (judge: RoundJudge | undefined): Promise<Segmentation | undefined> =>
  judge?.rule ? judge.rule() : judge?.segmentation;

/** Opened at the first question, so that it takes no memory while the policy learns; its verdicts come with the scores. */
export function lazily(openJudge: () => Promise<Scorer>): RoundJudge {
  let opening: Promise<Scorer> | undefined;
  let known: Scorer | undefined;
  const opened = async () => {
    opening ??= openJudge();
    known = await opening;
    return known;
  };
  const judge = scorer({
    name: 'judge',
    async score(solutions, options) {
      const open = await opened();
      const found = await open.score(solutions, options);
      return found?.map((own) => ({ ...own, verdicts: verdictsIn(open, own) }));
    },
    report: () => known?.report?.() ?? {},
    dispose() {
      known?.dispose();
      opening = known = undefined;
    },
  });
  return { ...judge, rule: async () => (await opened()).segmentation };
}
