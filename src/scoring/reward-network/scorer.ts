/** The fine-grained reward network of a run as a scorer. */
import { verdictTokenizer } from '../../data/verdict.js';
import type { Decoder } from '../../models/decoder.js';
import { roleHead } from '../../models/heads.js';
import { invalid } from '../../native/errors.js';
import { tokensAtOnce } from '../../sequences/batching.js';
import { verdictSequence } from '../../sequences/sequence.js';
import { type ReadingOptions, readable, unlabelled } from '../readable.js';
import { type Scorer, type Solution, scorer, scoresByStep } from '../scorer.js';
import { type PairMode, rewardSequence, scoreVerdicts } from './scores.js';

export interface RewardScorerOptions extends ReadingOptions {
  readonly mode: PairMode;
}

/**
 * In `label` mode a score is that of the verdict "right" less that of "wrong": the log-odds by which the network prefers the one to
 * the other. In `step` mode it is the network's own, of use between steps of one problem.
 *
 * @throws StepTrainError for a model without a score head
 */
export function rewardScorer(
  decoder: Decoder,
  {
    name = 'reward network',
    tokenizer,
    prompt = {},
    mode,
    role: reward = {},
    maxLength = decoder.config.maxPositions,
    skipUnreadable = false,
  }: RewardScorerOptions,
): Scorer {
  const verdicts = verdictTokenizer(prompt, tokenizer);
  const rewardHead = roleHead(decoder, reward);
  if (!rewardHead) throw invalid('reward network: the model has no score head');
  return scorer({
    name,
    scale: mode === 'label' ? 'log_odds' : 'reward',
    async score(solutions, { signal } = {}) {
      const places = solutions.flatMap((asked, i) => {
        const read = () => verdicts.solution(unlabelled(asked), { steps: 'all', maxLength });
        const solution = readable(read, skipUnreadable);
        if (!solution) return [];
        const sequence = rewardSequence(verdictSequence(solution, verdicts, i), verdicts, mode);
        return [{ i, solution, sequence }];
      });
      const sequences = places.map(({ sequence }) => sequence);
      const options = { mode, microBatchTokens: tokensAtOnce(decoder, signal), signal };
      const scores = await scoreVerdicts({ decoder, reward, rewardHead }, sequences, options);
      if (!scores) return undefined;
      const found = solutions.map(({ steps }) => ({
        tokens: 0,
        scores: steps.map((): number | null => null),
      }));
      places.forEach(({ i, solution, sequence }, at) => {
        const judged = (scores[at] ?? []).map(({ positive, negative }, v): [number, number] => [
          solution.verdicts[v]?.step as number,
          mode === 'label' ? positive - negative : positive,
        ]);
        found[i] = { tokens: sequence.ids.length, scores: scoresByStep(solutions[i] as Solution, judged) };
      });
      return found;
    },
  });
}
