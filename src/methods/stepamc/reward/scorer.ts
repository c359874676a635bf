/** The fine-grained reward network of a run as a scorer. */
import { type VerdictPromptOptions, verdictTokenizer } from '../../../data/verdict.js';
import { type StepScorer, scoresByStep } from '../../../eval/step-scorer.js';
import type { Decoder, Role } from '../../../models/decoder.js';
import { roleHead } from '../../../models/heads.js';
import { StepTrainError } from '../../../native/errors.js';
import { verdictSequence } from '../../../sequences/sequence.js';
import type { Tokenizer } from '../../../tokenizer/tokenizer.js';
import { type PairMode, rewardSequence, scoreVerdicts } from './score.js';

export interface RewardScorerOptions {
  readonly tokenizer: Tokenizer;
  /** As the network was trained with. */
  readonly prompt?: VerdictPromptOptions;
  readonly mode: PairMode;
  /** `reward/` of a run, an adapter with a head of one output. Default: the decoder itself is the network. */
  readonly role?: Pick<Role, 'adapter'>;
  readonly maxLength?: number;
}

/** Tokens of a forward; no score depends on it. */
const TOKENS_AT_ONCE = 4096;

/**
 * In `label` mode a score is that of the verdict "right" less that of "wrong": the log-odds by which the network prefers the one to
 * the other. In `step` mode it is the network's own, of use between steps of one problem.
 *
 * @throws StepTrainError for a model without a score head
 */
export function rewardScorer(
  decoder: Decoder,
  {
    tokenizer,
    prompt = {},
    mode,
    role: reward = {},
    maxLength = decoder.config.maxPositions,
  }: RewardScorerOptions,
): StepScorer {
  const verdicts = verdictTokenizer(prompt, tokenizer);
  const rewardHead = roleHead(decoder, reward);
  if (!rewardHead) throw new StepTrainError('E_RANGE', 'reward network: the model has no score head');
  return {
    scale: 'reward',
    async score(solutions, { signal = new AbortController().signal } = {}) {
      const placed = solutions.map(({ problem, steps }) => {
        const record = {
          problem,
          steps: steps.map((text) => ({ text, label: null, kind: 'normal' }) as const),
        };
        return verdicts.solution(record, { steps: 'all', maxLength });
      });
      const sequences = placed.map((solution, i) =>
        rewardSequence(verdictSequence(solution, verdicts, i), verdicts, mode),
      );
      const scores = await scoreVerdicts({ decoder, reward, rewardHead }, sequences, {
        mode,
        microBatchTokens: TOKENS_AT_ONCE,
        signal,
      });
      return scores?.map((list, i) => ({
        tokens: sequences[i]?.ids.length ?? 0,
        scores: scoresByStep(
          solutions[i] as (typeof solutions)[number],
          list.map(({ positive, negative }, v) => [
            placed[i]?.verdicts[v]?.step as number,
            mode === 'label' ? positive - negative : positive,
          ]),
        ),
      }));
    },
  };
}
