/** The problems of a run with their prompts. */
import { limited, problemRank } from '../../data/limit.js';
import { problemKey } from '../../data/overlap.js';
import { PARTS, type Part } from '../../data/split.js';
import { summarizeTrainingData } from '../../data/summary.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { RunData } from '../../train/method.js';
import { configuredProblems, type RunProblem } from '../../train/solutions/problems.js';
import type { SolutionPrompt } from '../../train/solutions/prompts.js';
import { solutionPrompts } from '../../train/solutions/prompts.js';
import type { PpoRunConfig } from './config.js';

export interface ProblemPart {
  readonly problems: readonly RunProblem[];
  /** By problem; undefined where prompt and solution do not fit in data.max_length. */
  readonly prompts: readonly (SolutionPrompt | undefined)[];
}

export interface ProblemData extends RunData {
  readonly parts: Readonly<Record<Part, ProblemPart>>;
  /** Texts that end a solution. */
  readonly stop: readonly string[];
}

export async function problemData(
  { data, rollout, eval: evaluation }: Pick<PpoRunConfig, 'data' | 'rollout' | 'eval'>,
  tokenizer: Tokenizer,
): Promise<ProblemData> {
  const { parts: all, reports, unanswered } = await configuredProblems(data);
  if (unanswered > 0) console.error(`${unanswered} rows have no answer and are left out`);
  const held = (part: readonly RunProblem[]) => limited(part, evaluation.max_samples, data, problemRank);
  const problems = { train: all.train, validation: held(all.validation), test: held(all.test) };
  let stop: readonly string[] = [];
  const parts = {} as Record<Part, ProblemPart>;
  for (const part of PARTS) {
    const {
      prompts,
      stop: ends,
      inReasoning,
    } = solutionPrompts(problems[part], {
      tokenizer,
      template: rollout.template,
      maxLength: data.max_length,
      maxNewTokens: rollout.max_new_tokens,
    });
    parts[part] = { problems: problems[part].map((problem) => ({ ...problem, inReasoning })), prompts };
    stop = ends;
    const tooLong = prompts.filter((prompt) => prompt === undefined).length;
    if (tooLong > 0)
      console.error(
        `${tooLong} of ${prompts.length} ${part} problems leave no room for ${rollout.max_new_tokens} tokens within ` +
          `data.max_length ${data.max_length} and are ${part === 'train' ? 'left out' : 'counted as wrong'}`,
      );
  }
  const summarized = (part: Part) =>
    problems[part].map(({ problem }) => ({
      key: problemKey(problem),
      labels: [],
      text: () => problem,
    }));
  return {
    parts,
    stop,
    summary: summarizeTrainingData({
      train: summarized('train'),
      validation: summarized('validation'),
      test: summarized('test'),
    }),
    reports,
    close() {},
  };
}
