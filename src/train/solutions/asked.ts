/** The problems that a run samples solutions of, and asks when it evaluates, with their prompts. */
import type { FrameConfig } from '../../config/schema.js';
import { limited, problemRank } from '../../data/limit.js';
import { problemKey } from '../../data/overlap.js';
import { PARTS, type Part } from '../../data/split.js';
import { summarizeTrainingData } from '../../data/summary.js';
import type { SolvingPrompt } from '../../generate/solving-prompt.js';
import { toLog } from '../../terminal/log.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { RunData } from '../method.js';
import { configuredProblems, type RunProblem } from './problems.js';
import {
  configuredPrompt,
  fittingPrompts,
  type SolutionPromptOptions,
  type SolutionPrompts,
} from './prompts.js';

export interface AskedPart extends Pick<SolutionPrompts, 'prompts'> {
  readonly problems: readonly RunProblem[];
}

export interface AskedProblems extends RunData {
  readonly parts: Readonly<Record<Part, AskedPart>>;
  /** The text around each problem, and the texts that end its solution. */
  readonly prompt: SolvingPrompt;
}

/** @throws as `configuredProblems` and `solutionPrompts` do */
export async function askedProblems(
  { data, eval: { max_samples } }: Pick<FrameConfig, 'data' | 'eval'>,
  tokenizer: Tokenizer,
  {
    template,
    maxNewTokens,
    episodes = false,
  }: Pick<SolutionPromptOptions, 'template' | 'maxNewTokens'> & { readonly episodes?: boolean },
): Promise<AskedProblems> {
  const { parts: all, reports, unanswered } = await configuredProblems(data, { episodes });
  if (unanswered > 0) toLog(`${unanswered} rows have no answer and are left out`);
  const prompt = configuredPrompt(tokenizer, template);
  const { opened } = prompt;
  const ofParts = <T>(make: (part: Part) => T) =>
    Object.fromEntries(PARTS.map((part) => [part, make(part)])) as Record<Part, T>;
  const parts = ofParts((part): AskedPart => {
    const own = part === 'train' ? all.train : limited(all[part], max_samples, data, problemRank);
    const prompts = fittingPrompts(own, prompt, { maxLength: data.max_length, maxNewTokens });
    const tooLong = prompts.filter((prompt) => prompt === undefined).length;
    if (tooLong > 0)
      toLog(
        `${tooLong} of ${prompts.length} ${part} problems leave no room for ${maxNewTokens} tokens within ` +
          `data.max_length ${data.max_length} and are ${part === 'train' ? 'left out' : 'counted as wrong'}`,
      );
    return { problems: own.map((problem) => ({ ...problem, opened })), prompts };
  });
  const summarized = ({ problem }: RunProblem) => ({
    key: problemKey(problem),
    labels: [],
    text: () => problem,
  });
  const summary = summarizeTrainingData(ofParts((part) => parts[part].problems.map(summarized)));
  return { parts, prompt, summary, reports, close() {} };
}
