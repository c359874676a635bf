/** A verdict model as a scorer: the probability of the word for a right step, after each step. */
import { inMemory } from '../data/dataset.js';
import { type VerdictPromptOptions, verdictTokenizer } from '../data/verdict.js';
import type { Decoder, Role } from '../models/decoder.js';
import { verdictSequence } from '../sequences/sequence.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { type StepScorer, scoresByStep } from './step-scorer.js';
import { judgeVerdicts } from './verdicts.js';

export interface VerdictScorerOptions {
  readonly tokenizer: Tokenizer;
  /** As the model was trained with. */
  readonly prompt?: VerdictPromptOptions;
  readonly role?: Pick<Role, 'adapter'>;
  /** Most tokens of a verdict's sequence. Default: as many as the model reads. */
  readonly maxLength?: number;
}

/** Tokens of a forward; no score depends on it. */
const TOKENS_AT_ONCE = 4096;

/** @throws DataError for a prompt that the tokenizer cannot express */
export function verdictScorer(
  decoder: Decoder,
  { tokenizer, prompt = {}, role = {}, maxLength = decoder.config.maxPositions }: VerdictScorerOptions,
): StepScorer {
  const verdicts = verdictTokenizer(prompt, tokenizer);
  return {
    scale: 'probability',
    async score(solutions, { signal } = {}) {
      const sequences = solutions.map(({ problem, steps }, i) => {
        // Only labelled steps are judged; the label itself changes no probability.
        const record = { problem, steps: steps.map((text) => ({ text, label: 1, kind: 'normal' }) as const) };
        return verdictSequence(verdicts.solution(record, { maxLength }), verdicts, i);
      });
      const judged = await judgeVerdicts(decoder, role, inMemory(sequences), {
        threshold: 0.5,
        microBatchTokens: TOKENS_AT_ONCE,
        ...(signal ? { signal } : {}),
      });
      if (signal?.aborted) return undefined;
      return solutions.map((solution, i) => ({
        tokens: sequences[i]?.ids.length ?? 0,
        scores: scoresByStep(
          solution,
          judged.filter((each) => each.solution === i).map(({ step, probability }) => [step, probability]),
        ),
      }));
    },
  };
}
