/** How well a model solves word problems: answers, and whether the steps to them hold. */
import type { Model } from '../api/model.js';
import { judgeText, type StepError } from '../data/problems/oracle.js';
import type { WordProblem } from '../data/problems/problem.js';
import type { Sample } from '../generate/sample-row.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';

export interface WordProblemEvaluation {
  /** Samples of each problem at temperature 1. Default 8. */
  readonly k?: number;
  readonly seed?: number;
  /** Most tokens of a solution. Default 192: one of eight steps has about 120. */
  readonly maxNewTokens?: number;
}

/** Shares from 0 to 1. */
export interface WordProblemScores {
  readonly problems: number;
  readonly k: number;
  /** Problems whose most likely solution has the right answer. */
  readonly greedy: number;
  /** Samples with the right answer, and problems with one among the k. */
  readonly passAt1: number;
  readonly passAtK: number;
  /** Of the samples with the right answer, those with a wrong line. */
  readonly luckyAnswers: number;
  /** Solutions that end by themselves, greedy ones and samples. */
  readonly ended: number;
  /** Wrong lines of the samples by kind. */
  readonly errors: ReadonlyMap<StepError, number>;
}

/** Problems whose samples are in memory together. */
const CHUNK = 256;

/** Solves each problem once greedily and k times by sampling, and asks the oracle. */
export async function solveWordProblems(
  model: Pick<Model, 'generate'>,
  tokenizer: Tokenizer,
  problems: readonly WordProblem[],
  { k = 8, seed = 0, maxNewTokens = 192 }: WordProblemEvaluation = {},
): Promise<WordProblemScores> {
  const counts = { greedy: 0, right: 0, solved: 0, lucky: 0, ended: 0 };
  const errors = new Map<StepError, number>();
  for (let begin = 0; begin < problems.length; begin += CHUNK) {
    const chunk = problems.slice(begin, begin + CHUNK);
    const prompts = chunk.map(({ problem }) => tokenizer.encode(`${problem}\n`));
    const { eosId } = tokenizer;
    const ends = eosId === undefined ? {} : { eosTokenIds: [eosId] };
    const options = { tokenizer, seed, maxNewTokens, ...ends };
    const greedy = await model.generate(prompts, { ...options, temperature: 0 });
    const promptIds = chunk.map((_, i) => begin + i);
    const sampled = await model.generate(prompts, { ...options, n: k, promptIds });
    for (const [i, problem] of chunk.entries()) {
      const [first] = greedy[i] as [Sample];
      const samples = sampled[i] as readonly Sample[];
      const judge = ({ text = '', finishReason }: Sample) => {
        const { lines, isAnswerRight } = judgeText(problem, text);
        return { lines, isRight: isAnswerRight && finishReason === 'stop' };
      };
      const judged = samples.map(judge);
      const right = judged.filter(({ isRight }) => isRight);
      if (judge(first).isRight) counts.greedy++;
      counts.right += right.length;
      if (right.length > 0) counts.solved++;
      counts.lucky += right.filter(({ lines }) => lines.some((line) => !line.right)).length;
      counts.ended += [first, ...samples].filter(({ finishReason }) => finishReason === 'stop').length;
      for (const { error } of judged.flatMap(({ lines }) => lines))
        if (error !== undefined) errors.set(error, (errors.get(error) ?? 0) + 1);
    }
  }
  const of = (count: number, all: number) => (all === 0 ? 0 : count / all);
  const n = problems.length;
  return {
    problems: n,
    k,
    greedy: of(counts.greedy, n),
    passAt1: of(counts.right, n * k),
    passAtK: of(counts.solved, n),
    luckyAnswers: of(counts.lucky, counts.right),
    ended: of(counts.ended, n * (k + 1)),
    errors,
  };
}
