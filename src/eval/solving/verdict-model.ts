// A model that says of steps whether they are right, as a judge of solutions and as a reward model of their steps.
import { type VerdictPromptOptions, verdictTokenizer } from '../../data/verdict.js';
import type { Decoder, Role } from '../../models/decoder.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import { judgedSolutions } from '../judged-solutions.js';
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

/** The score of a step is the probability of the word for right among the two. */
export function verdictModel(
  { decoder, adapter }: { readonly decoder: Decoder } & Pick<Role, 'adapter'>,
  { name, tokenizer, prompt, maxLength, threshold = 'greedy' }: VerdictModelOptions,
): SolutionScorer & StepJudge {
  const verdicts = verdictTokenizer(prompt, tokenizer);
  const judged = async (solutions: readonly Solution[], signal?: AbortSignal) => {
    const asked = solutions.map(({ of, steps }) => ({ problem: of.problem, steps }));
    const options = { maxLength, threshold, skipUnreadable: true, signal };
    const found = await judgedSolutions(decoder, adapter ? { adapter } : {}, verdicts, asked, options);
    return found.map(({ verdicts: of }) => of);
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
