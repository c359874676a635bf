/** The problems that a run samples solutions of, and asks when it evaluates, with their prompts. */
import type { FrameConfig } from '../../config/schema.js';
import { limited, problemRank } from '../../data/limit.js';
import { problemKey } from '../../data/overlap.js';
import { PARTS, type Part } from '../../data/split.js';
import { summarizeTrainingData } from '../../data/summary.js';
import { toLog } from '../../terminal/log.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { RunData } from '../method.js';
import { configuredProblems, type RunProblem } from './problems.js';
import { type SolutionPromptOptions, type SolutionPrompts, solutionPrompts } from './prompts.js';

export interface AskedPart extends Pick<SolutionPrompts, 'prompts'> {
  readonly problems: readonly RunProblem[];
}

export interface AskedProblems extends RunData {
  readonly parts: Readonly<Record<Part, AskedPart>>;
  /** Texts that end a solution. */
  readonly stop: readonly string[];
}

/** @throws as `configuredProblems` and `solutionPrompts` do */
export async function askedProblems(
  { data, eval: { max_samples } }: Pick<FrameConfig, 'data' | 'eval'>,
  tokenizer: Tokenizer,
  how: Pick<SolutionPromptOptions, 'template' | 'maxNewTokens'>,
): Promise<AskedProblems> {
  const { parts: all, reports, unanswered } = await configuredProblems(data);
  if (unanswered > 0) toLog(`${unanswered} rows have no answer and are left out`);
  let stop: readonly string[] = [];
  const ofParts = <T>(make: (part: Part) => T) =>
    Object.fromEntries(PARTS.map((part) => [part, make(part)])) as Record<Part, T>;
  const parts = ofParts((part): AskedPart => {
    const own = part === 'train' ? all.train : limited(all[part], max_samples, data, problemRank);
    const asked = solutionPrompts(own, { tokenizer, maxLength: data.max_length, ...how });
    const { prompts, inReasoning } = asked;
    stop = asked.stop;
    const tooLong = prompts.filter((prompt) => prompt === undefined).length;
    if (tooLong > 0)
      toLog(
        `${tooLong} of ${prompts.length} ${part} problems leave no room for ${how.maxNewTokens} tokens within ` +
          `data.max_length ${data.max_length} and are ${part === 'train' ? 'left out' : 'counted as wrong'}`,
      );
    return { problems: own.map((problem) => ({ ...problem, inReasoning })), prompts };
  });
  const summarized = ({ problem }: RunProblem) => ({
    key: problemKey(problem),
    labels: [],
    text: () => problem,
  });
  const summary = summarizeTrainingData(ofParts((part) => parts[part].problems.map(summarized)));
  return { parts, stop, summary, reports, close() {} };
}
