/** The fine-grained reward network of a run as a scorer. */
import { type SolutionVerdicts, verdictTokenizer } from '../../data/verdict.js';
import type { Decoder, Role } from '../../models/decoder.js';
import { roleHead } from '../../models/heads.js';
import { invalid } from '../../native/errors.js';
import { tokensAtOnce } from '../../sequences/batching.js';
import { asRecord, type ReadingOptions, readable } from '../readable.js';
import { type Scorer, type Solution, scorer, scoresByStep } from '../scorer.js';
import { writeReasons } from '../verdict/written-verdicts.js';
import { type PairMode, rewardSequence, scoreVerdicts } from './scores.js';

export interface RewardScorerOptions extends ReadingOptions {
  readonly mode: PairMode;
  /** The policy whose reasons the network reads, where verdicts follow reasons. */
  readonly writer?: { readonly decoder: Decoder; readonly role: Role } | undefined;
}

/**
 * Scores steps by a reward network. In `label` mode a score is that of the verdict "right" less that of "wrong": the
 * log-odds by which the network prefers the one to the other. In `step` mode it is the network's own, which compares
 * steps of one problem.
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
    writer,
  }: RewardScorerOptions,
): Scorer {
  const verdicts = verdictTokenizer(prompt, tokenizer);
  const rewardHead = roleHead(decoder, reward);
  if (!rewardHead) throw invalid('reward network: the model has no score head');
  const reads = mode === 'label' && verdicts.template.rationaleTokens > 0;
  if (reads && !writer)
    throw invalid(
      'reward network: it reads the reason that a policy writes before each verdict, and none is here; name the run, not its reward/',
    );
  const reasonsOf = async (solutions: readonly SolutionVerdicts[], signal: AbortSignal | undefined) => {
    const prompts = solutions.flatMap(({ trunk, verdicts: places }) =>
      places.map(({ at }) => [...trunk.ids.slice(0, at), ...verdicts.tailIds]),
    );
    if (!writer) return undefined;
    const written = await writeReasons(writer.decoder, prompts, {
      tokenizer: verdicts,
      role: writer.role,
      temperature: 0,
      ...(signal ? { signal } : {}),
    });
    let at = 0;
    return (
      written &&
      solutions.map(({ verdicts: { length } }) => {
        at += length;
        return written.slice(at - length, at);
      })
    );
  };
  return scorer({
    name,
    scale: mode === 'label' ? 'log_odds' : 'reward',
    readsTurns: true,
    async score(solutions, { signal } = {}) {
      const asked = solutions.flatMap((each, i) => {
        const read = () => verdicts.solution(asRecord(each), { steps: 'all', maxLength });
        const solution = readable(read, skipUnreadable);
        return solution ? [{ i, solution }] : [];
      });
      const reasons = reads
        ? await reasonsOf(
            asked.map(({ solution }) => solution),
            signal,
          )
        : [];
      if (!reasons) return undefined;
      const places = asked.map(({ i, solution }, k) => ({
        ...{ i, solution },
        sequence: rewardSequence({ solution, rowId: i }, verdicts, mode, reasons[k]),
      }));
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
