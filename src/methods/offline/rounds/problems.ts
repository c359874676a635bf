/** The problems that a run samples solutions of, and asks when it evaluates. */
import { limited, problemRank } from '../../../data/limit.js';
import type { LoadReport } from '../../../data/load.js';
import { problemKey } from '../../../data/overlap.js';
import { PARTS, type Part } from '../../../data/split.js';
import { summarizeTrainingData, type TrainingDataSummary } from '../../../data/summary.js';
import type { Tokenizer } from '../../../tokenizer/tokenizer.js';
import { configuredProblems, type RunProblem } from '../../../train/solutions/problems.js';
import { type SolutionPrompts, solutionPrompts } from '../../../train/solutions/prompts.js';
import type { RoundsConfig } from './config.js';

export interface AskedProblems {
  readonly problems: Readonly<Record<Part, readonly RunProblem[]>>;
  readonly prompts: Readonly<Record<Part, SolutionPrompts>>;
}

export interface ReadProblems {
  readonly asked: AskedProblems;
  readonly summary: TrainingDataSummary;
  readonly reports: readonly LoadReport[];
}

export async function askedProblems(config: RoundsConfig, tokenizer: Tokenizer): Promise<ReadProblems> {
  const { data, question, sampling } = config;
  const { parts, reports, unanswered } = await configuredProblems(data);
  if (unanswered > 0) console.error(`${unanswered} rows have no answer and are left out`);
  const limit = config.eval.max_samples;
  const ofParts = <T>(make: (part: Part) => T) =>
    Object.fromEntries(PARTS.map((part) => [part, make(part)])) as Record<Part, T>;
  const held = ofParts((part) =>
    part === 'train' ? parts[part] : limited(parts[part], limit, data, problemRank),
  );
  const prompts = ofParts((part) =>
    solutionPrompts(held[part], {
      tokenizer,
      template: question.template,
      maxLength: data.max_length,
      maxNewTokens: sampling.max_new_tokens,
    }),
  );
  const problems = ofParts((part) =>
    held[part].map((problem): RunProblem => ({ ...problem, inReasoning: prompts[part].inReasoning })),
  );
  for (const part of PARTS) {
    const tooLong = prompts[part].prompts.filter((prompt) => prompt === undefined).length;
    if (tooLong > 0)
      console.error(
        `${tooLong} of ${problems[part].length} ${part} problems leave no room for ${sampling.max_new_tokens} tokens within ` +
          `data.max_length ${data.max_length} and are left out`,
      );
  }
  const summarized = ({ problem }: RunProblem) => ({
    key: problemKey(problem),
    labels: [],
    text: () => problem,
  });
  return {
    asked: { problems, prompts },
    summary: summarizeTrainingData(ofParts((part) => problems[part].map(summarized))),
    reports,
  };
}
