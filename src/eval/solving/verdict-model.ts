// A model that says of steps whether they are right, as a judge of solutions and as a reward model of their steps.
import { inMemory } from '../../data/dataset.js';
import { type VerdictPromptOptions, verdictTokenizer } from '../../data/verdict.js';
import { DataError } from '../../files/data-error.js';
import type { Decoder, Role } from '../../models/decoder.js';
import { verdictSequence } from '../../sequences/sequence.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import { judgeVerdicts } from '../verdicts.js';
import type { Solution, SolutionScorer, StepJudge } from './judging.js';

export interface VerdictModelOptions {
  readonly name: string;
  readonly tokenizer: Tokenizer;
  /** Words and template that the model was trained with. */
  readonly prompt: VerdictPromptOptions;
  /** Longest sequence in tokens; steps beyond it are not judged. */
  readonly maxLength: number;
  /** As in `judgeVerdicts`. Default `greedy`. */
  readonly threshold?: 'greedy' | number;
}

/** Max tokens per forward; no verdict depends on it. */
const TOKENS_AT_ONCE = 4096;

/** The score of a step is the probability of the word for right among the two. */
export function verdictModel(
  { decoder, adapter }: { readonly decoder: Decoder } & Pick<Role, 'adapter'>,
  { name, tokenizer, prompt, maxLength, threshold = 'greedy' }: VerdictModelOptions,
): SolutionScorer & StepJudge {
  const verdicts = verdictTokenizer(prompt, tokenizer);
  /** By solution and step; undefined for a step that lies beyond the longest sequence or cannot be read. */
  const judged = async (solutions: readonly Solution[], signal?: AbortSignal) => {
    const readable = solutions.flatMap(({ of, steps }, i) => {
      // A label asks for the verdict on a step, and its value plays no part.
      const labelled = steps.map((text) => ({ text, label: 1 as const, kind: 'normal' as const }));
      const sequence = sequenceOf(() =>
        verdictSequence(
          verdicts.solution({ problem: of.problem, steps: labelled }, { maxLength }),
          verdicts,
          i,
        ),
      );
      return sequence && steps.length > 0 ? [{ i, sequence }] : [];
    });
    const found = await judgeVerdicts(
      decoder,
      { ...(adapter ? { adapter } : {}) },
      inMemory(readable.map(({ sequence }) => sequence)),
      { threshold, microBatchTokens: TOKENS_AT_ONCE, ...(signal ? { signal } : {}) },
    );
    const bySolution = solutions.map(({ steps }) =>
      steps.map((): (typeof found)[number] | undefined => undefined),
    );
    for (const verdict of found) {
      const { i } = readable[verdict.solution] as (typeof readable)[number];
      (bySolution[i] as (typeof found)[number][])[verdict.step] = verdict;
    }
    return bySolution;
  };
  return {
    name,
    async score(solutions, signal) {
      const steps = await judged(solutions, signal);
      return steps.map((of) => of.flatMap((verdict) => (verdict ? [verdict.probability] : [])));
    },
    async judge(solutions, signal) {
      const steps = await judged(solutions, signal);
      return steps.map((of) => of.map((verdict) => verdict?.verdict ?? null));
    },
  };
}

/** Undefined for text that the tokenizer cannot express. */
function sequenceOf<T>(make: () => T): T | undefined {
  try {
    return make();
  } catch (error) {
    if (error instanceof DataError && error.kind === 'tokenizer') return undefined;
    throw error;
  }
}
