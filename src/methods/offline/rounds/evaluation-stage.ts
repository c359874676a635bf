/** The last stage of a round: held-out problems solved greedily and by sampling, and what the figures are made of. */
import {
  type Contributions,
  contributions,
  type MetricValue,
  metricValues,
} from '../../../eval/solving/metrics.js';
import type { GradedSample } from '../../../eval/solving/sample.js';
import { stepContributions, sumsOf } from '../../../eval/solving/step-metrics.js';
import { grouped } from '../../../native/grouped.js';
import { stepsBy } from '../../../records/segment.js';
import { sampled, verdictsOf } from '../../../scoring/scorer.js';
import type { AskedPart } from '../../../train/solutions/asked.js';
import { gradedSample } from '../../../train/solutions/held-out.js';
import type { RunProblem } from '../../../train/solutions/problems.js';
import type { SolutionSource } from '../../../train/solutions/solution-source.js';
import type { MakingStage, SaveSettings } from '../../../train/stage.js';
import { isRight } from './candidates.js';
import { chunkedStage } from './chunked-stage.js';
import { type RoundJudge, ruleOf } from './judges.js';

/** A row of artefacts/eval-N.jsonl; sample 0 is the greedy one. */
export type EvaluatedRow = Omit<GradedSample, 'prompt' | 'score'>;

export interface EvaluateStageOptions extends AskedPart {
  readonly name: string;
  readonly greedy: SolutionSource;
  readonly source: SolutionSource;
  /** Samples in addition to the greedy one. */
  readonly samples: number;
  readonly judge: RoundJudge | undefined;
  readonly settings: SaveSettings;
}

export function evaluateStage(options: EvaluateStageOptions): MakingStage {
  const { name, problems, prompts, greedy, source, samples, judge, settings } = options;
  const judged = judge && verdictsOf(judge);
  return chunkedStage({
    name,
    settings,
    items: problems.map((problem, id) => ({ problem, id, prompt: prompts[id] })),
    async step(chunk, _, signal) {
      const asked = chunk.flatMap(({ prompt }) => prompt ?? []);
      // All models are asked with the same random numbers.
      const first = await greedy.sample(asked, { iteration: 0, n: 1, signal });
      const others = samples > 0 ? await source.sample(asked, { iteration: 0, n: samples, signal }) : [];
      if (!first || !others) return undefined;
      let next = 0;
      const drawn = chunk.flatMap(({ problem, id, prompt }) => {
        const at = prompt ? next++ : undefined;
        const own = at === undefined ? [] : [...(first[at] ?? []), ...(others[at] ?? [])];
        return Array.from({ length: 1 + samples }, (_, sample): EvaluatedRow => {
          const solution = own[sample];
          const row = gradedSample(problem, { problem: id, sample }, solution);
          return solution
            ? { ...row, right: isRight(problem, { text: row.text, finish_reason: solution.finishReason }) }
            : row;
        });
      });
      const rule = await ruleOf(judge);
      const solutions = drawn.map((sample) =>
        sampled(problems[sample.problem] as RunProblem, sample, stepsBy(sample.text, rule)),
      );
      const verdicts = await judged?.(solutions, signal);
      if (signal.aborted) return undefined;
      const rows = drawn.map((sample, i): EvaluatedRow & Record<string, unknown> => ({
        ...sample,
        ...(verdicts ? { steps: verdicts[i] ?? [] } : {}),
      }));
      const right = rows.filter((row) => row.sample === 0 && row.right).length;
      return {
        // A share, as `right` of every other stage.
        metrics: { problems: chunk.length, ...(chunk.length > 0 ? { right: right / chunk.length } : {}) },
        shown: { right, problems: chunk.length },
        tokens: rows.reduce((sum, { tokens }) => sum + tokens, 0),
        rows,
      };
    },
    dispose: () => judge?.dispose(),
  });
}

/**
 * Figures of one model, with intervals from the bootstrap over problems:
 * - `pass@1`: greedy solutions that are right; `sampled pass@1` the mean over samples; `maj@k`
 * - `step_errors`: of the right samples, those with a step judged wrong; `wrong_steps`: of their judged steps, the
 *   wrong ones
 * - `right_and_clean`: samples that are right and have every step judged right; `unjudged_steps`: steps without a
 *   verdict
 * - `duplicate_steps`, `trivial_steps`: steps that repeat one of their solution, or compute nothing
 */
export function evaluationMetrics(rows: readonly EvaluatedRow[]): Record<string, MetricValue> {
  const all = [...grouped(rows, ({ problem }) => problem).values()];
  const greedy = all.map((samples) => samples.filter(({ sample }) => sample === 0));
  const sampled = all.map((samples) => samples.filter(({ sample }) => sample > 0));
  const k = sampled[0]?.length ?? 0;
  const judged = k > 0 ? sampled : greedy;
  const metrics = new Map<string, Contributions>();
  metrics.set(
    'pass@1',
    sumsOf(greedy, ({ right }) => [right ? 1 : 0, 1]),
  );
  const graded = contributions(
    judged.map((samples) => samples.map((row) => ({ ...row, prompt: '' }))),
    { ks: [1, ...(k > 2 ? [k] : [])] },
  );
  for (const [name, of] of graded) if (!/^(tokens_problem|pass@)/.test(name)) metrics.set(name, of);
  if (k > 0) metrics.set('sampled pass@1', graded.get('pass@1') as Contributions);
  for (const [name, of] of stepContributions(judged)) metrics.set(name, of);
  return metricValues(metrics);
}
