/** The first stage of a round: candidates of the model as it is. */
import { PhiloxStream } from '../../../random/philox.js';
import { type Draws, drawKey } from '../../../run/draws.js';
import { epochOrder } from '../../../sequences/batching.js';
import type { SolutionPrompts } from '../../../train/solutions/prompts.js';
import type { SampledSolution, SolutionSource } from '../../../train/solutions/solution-source.js';
import type { MakingStage, SaveSettings } from '../../../train/stage.js';
import type { CandidateRow } from './candidates.js';
import { chunkedStage } from './chunked-stage.js';

export interface SampleStageOptions {
  readonly name: string;
  readonly iteration: number;
  readonly source: SolutionSource;
  readonly prompts: SolutionPrompts['prompts'];
  /** Indices of the problems of this round. */
  readonly problems: readonly number[];
  readonly settings: SaveSettings;
  /** Samples of each prompt. */
  readonly n: number;
  /** Keeps what was drawn of a chunk that was stopped. */
  readonly draws: Draws;
}

export function sampleStage(options: SampleStageOptions): MakingStage {
  const { name, iteration, source, prompts, problems, settings, n, draws } = options;
  return chunkedStage({
    name,
    settings,
    items: problems.flatMap((i) => prompts[i] ?? []),
    async step(chunk, _, signal, report) {
      const keyOf = (prompt: number, sample: number) => {
        const { id, ids } = chunk[prompt] as (typeof chunk)[number];
        return drawKey([name, id, ids, sample]);
      };
      const rows = chunk.map((_, prompt) =>
        Array.from(
          { length: n },
          (_, sample) => draws.get(keyOf(prompt, sample)) as CandidateRow | undefined,
        ),
      );
      const take = (prompt: number, sample: number, { text, tokens, finishReason }: SampledSolution) => {
        const row: CandidateRow = {
          problem: (chunk[prompt] as (typeof chunk)[number]).id,
          sample,
          text,
          tokens: tokens.length,
          finish_reason: finishReason,
        };
        (rows[prompt] as (CandidateRow | undefined)[])[sample] = row;
        return row;
      };
      const isKept = (prompt: number, sample: number) => rows[prompt]?.[sample] !== undefined;
      let done = rows.flat().filter((row) => row !== undefined).length;
      let drawn = 0;
      const samples = await source.sample(chunk, {
        iteration,
        n,
        signal,
        skip: isKept,
        onSample(prompt, sample, ended) {
          draws.keep(keyOf(prompt, sample), take(prompt, sample, ended));
          drawn += ended.tokens.length;
          report?.({ unit: 'candidate', done: ++done, total: n * chunk.length, tokens: drawn });
        },
      });
      if (!samples) return undefined;
      // A source that does not tell of single samples returns them all.
      samples.forEach((list, prompt) => {
        list.forEach((ended, sample) => {
          if (!isKept(prompt, sample)) take(prompt, sample, ended);
        });
      });
      const all = rows.flat().filter((row) => row !== undefined);
      const tokens = all.reduce((sum, { tokens }) => sum + tokens, 0);
      return {
        metrics: { samples: all.length },
        shown: { samples: all.length },
        tokens,
        rows: all.map((row) => ({ ...row })),
      };
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
