// How well a model solves word problems: answers, and whether the steps to them hold.
import { judgeText } from '../dist/data/problems/oracle.js';

/** Problems whose samples are in memory together. */
const CHUNK = 256;

/**
 * Solves each problem once greedily and k times by sampling at temperature 1, and asks the oracle. Shares from 0 to 1: `greedy` of
 * problems whose most likely solution has the right answer; `passAt1` of samples with it, `passAtK` of problems with such a sample;
 * `luckyAnswers` of those samples with a wrong line; `ended` of all solutions that end by themselves. `errors`: wrong lines of the
 * samples by kind.
 */
export async function solveWordProblems(
  model,
  tokenizer,
  problems,
  { k = 8, seed = 0, maxNewTokens = 192 } = {},
) {
  const counts = { greedy: 0, right: 0, solved: 0, lucky: 0, ended: 0 };
  const errors = new Map();
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
      const [first] = greedy[i];
      const samples = sampled[i];
      const judge = ({ text = '', finishReason }) => {
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
  const of = (count, all) => (all === 0 ? 0 : count / all);
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
