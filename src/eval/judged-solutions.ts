/** Verdicts on the steps of solutions without labels, as verdict models give them when they score and when they judge. */
import { inMemory } from '../data/dataset.js';
import type { VerdictTokenizer } from '../data/verdict.js';
import { DataError } from '../files/data-error.js';
import type { Decoder, Role } from '../models/decoder.js';
import type { LikelihoodWeights } from '../scoring/settings.js';
import { verdictSequence } from '../sequences/sequence.js';
import type { JudgedVerdict } from './judged-verdict.js';
import type { StepSolution } from './step-scorer.js';
import { judgeVerdicts } from './verdicts.js';

export interface JudgedSolution {
  /** By step; undefined where its sequence is longer than `maxLength`. */
  readonly verdicts: readonly (JudgedVerdict | undefined)[];
  /** Tokens that were read. */
  readonly tokens: number;
}

export interface JudgedSolutionsOptions {
  /** Max tokens of a sequence. */
  readonly maxLength: number;
  /** As in `judgeVerdicts`. */
  readonly threshold: 'greedy' | number;
  /** Leaves out solutions that the tokenizer cannot express instead of throwing. */
  readonly skipUnreadable?: boolean;
  /** As in `judgeVerdicts`. */
  readonly likelihood?: LikelihoodWeights | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Max tokens per forward; no verdict depends on it. */
const TOKENS_AT_ONCE = 4096;

/** @throws DataError for text that the tokenizer cannot express */
export async function judgedSolutions(
  decoder: Decoder,
  role: Pick<Role, 'adapter'>,
  tokenizer: VerdictTokenizer,
  solutions: readonly StepSolution[],
  { maxLength, threshold, skipUnreadable = false, likelihood, signal }: JudgedSolutionsOptions,
): Promise<JudgedSolution[]> {
  const places = solutions.flatMap(({ problem, steps }, i) => {
    if (steps.length === 0) return [];
    // Only labelled steps are judged; the label itself changes no verdict.
    const record = { problem, steps: steps.map((text) => ({ text, label: 1, kind: 'normal' }) as const) };
    try {
      return [{ i, sequence: verdictSequence(tokenizer.solution(record, { maxLength }), tokenizer, i) }];
    } catch (error) {
      if (skipUnreadable && error instanceof DataError && error.kind === 'tokenizer') return [];
      throw error;
    }
  });
  const sequences = places.map(({ sequence }) => sequence);
  const judged = await judgeVerdicts(decoder, role, inMemory(sequences), {
    threshold,
    tokenizer,
    microBatchTokens: TOKENS_AT_ONCE,
    likelihood,
    ...(signal ? { signal } : {}),
  });
  const bySolution = solutions.map(({ steps }) => ({
    verdicts: new Array<JudgedVerdict | undefined>(steps.length).fill(undefined),
    tokens: 0,
  }));
  for (const { i, sequence } of places) if (bySolution[i]) bySolution[i].tokens = sequence.ids.length;
  for (const verdict of judged) {
    const of = bySolution[places[verdict.solution]?.i as number];
    if (of) of.verdicts[verdict.step] = verdict;
  }
  return bySolution;
}
