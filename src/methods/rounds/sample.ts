/** The first stage of a round: candidates of the model as it is. */
import { PhiloxStream } from '../../random/philox.js';
import { epochOrder } from '../../sequences/batching.js';
import type { SolutionPrompts } from '../../train/solutions/prompts.js';
import type { SolutionSampler } from '../../train/solutions/sampler.js';
import type { MakingStage, SaveSettings } from '../../train/stage.js';
import type { CandidateRow } from './candidates.js';
import { chunkedStage } from './chunked-stage.js';

export interface SampleStageOptions {
  readonly name: string;
  readonly iteration: number;
  readonly sampler: SolutionSampler;
  readonly prompts: SolutionPrompts['prompts'];
  /** Indices of the problems of this round. */
  readonly problems: readonly number[];
  readonly settings: SaveSettings;
}

export function sampleStage(options: SampleStageOptions): MakingStage {
  const { name, iteration, sampler, prompts, problems, settings } = options;
  return chunkedStage({
    name,
    settings,
    items: problems.flatMap((i) => prompts[i] ?? []),
    async step(chunk, _, signal) {
      const samples = await sampler.sample(chunk, { iteration, signal });
      if (!samples) return undefined;
      const rows = chunk.flatMap(({ id: problem }, i) =>
        (samples[i] ?? []).map(
          ({ text, tokens, finishReason }, sample): CandidateRow & Record<string, unknown> => ({
            problem,
            sample,
            text,
            tokens: tokens.length,
            finish_reason: finishReason,
          }),
        ),
      );
      const tokens = rows.reduce((sum, { tokens }) => sum + tokens, 0);
      return { metrics: { samples: rows.length }, shown: { samples: rows.length }, tokens, rows };
    },
  });
}

/** Domain of the random stream that orders problems. */
const PROBLEMS = 0x70726f62;

/** The problems of round `iteration`, from 1: with `fresh` the next ones of one random order, round after round. */
export function roundProblems(
  count: number,
  { iteration, size, fresh, seed }: { iteration: number; size: number | 'all'; fresh: boolean; seed: number },
): number[] {
  const order = epochOrder(count, new PhiloxStream(seed, PROBLEMS, 0).below(2 ** 31), 0);
  const each = size === 'all' ? count : Math.min(size, count);
  const from = fresh ? (iteration - 1) * each : 0;
  return Array.from({ length: each }, (_, i) => order[(from + i) % count] as number);
}
