/**
 * The places of rewards and advantages in the loop of online methods: a distilled solution has the answer checker's verdict for the log, and
 * a weight of each token where a judge weighs its steps.
 */
import { stepsBy } from '../../records/segment.js';
import { RunError } from '../../run/error.js';
import type { Scorer, Solution } from '../../scoring/scorer.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import { mean } from '../../train/policy/metrics.js';
import type { Advantage, AnswerReward, RewardSource } from '../../train/policy/records.js';
import { gradeSolution, type RunProblem } from '../../train/solutions/problems.js';
import type { SolutionGroup } from '../ppo/rollout.js';
import { type StepWeights, stepWeights, tokenWeights } from './step-weights.js';

export interface WeighingOptions {
  readonly judge: Scorer | undefined;
  readonly problemOf: (item: number) => RunProblem;
  readonly tokenizer: Tokenizer;
  readonly settings: StepWeights;
}

/** @throws RunError for a judge that gives no probabilities of steps */
export function checkJudge(judge: Scorer | undefined): void {
  if (!judge || (judge.unit === 'step' && judge.scale === 'probability')) return;
  throw new RunError(
    `distill.judge ${judge.name} scores ${judge.unit === 'outcome' ? 'whole solutions' : 'steps without bounds'}, and weights of steps are ` +
      'probabilities that they are right; name a judge of steps',
  );
}

/** `byToken` is the weight of each token. */
export function weighing({
  judge,
  problemOf,
  tokenizer,
  settings,
}: WeighingOptions): RewardSource<SolutionGroup> {
  const rule = judge?.segmentation;
  return {
    async reward(groups, { signal }) {
      const solutions = groups.flatMap(({ item, answers }) =>
        answers.map((answer): Solution & { readonly problem: string } => {
          const of = problemOf(item);
          return { problem: of.problem, of, text: answer.text, steps: stepsBy(answer.text, rule) };
        }),
      );
      const judged = judge && (await judge.score(solutions, { signal }));
      if (judge && !judged) return undefined;
      const scores = judged?.flatMap(({ scores }) => scores.filter((score) => score !== null)) ?? [];
      let at = 0;
      const byGroup = groups.map(({ item, answers }) =>
        answers.map(({ text, tokens, truncated }): AnswerReward => {
          const own = judged?.[at++]?.scores;
          const weights = own && tokenWeights(stepWeights(own, settings), { text, tokens }, tokenizer, rule);
          const right = Number(gradeSolution(problemOf(item), text, !truncated).correct);
          return { value: right, byToken: weights ?? tokens.map(() => 1) };
        }),
      );
      const answers = groups.flatMap((group) => group.answers);
      return {
        byGroup,
        metrics: {
          right: mean(byGroup.flat().map(({ value }) => value)),
          truncated: mean(answers.map(({ truncated }) => Number(truncated))),
          ...(judged
            ? {
                // A mean of none is none.
                ...(scores.length > 0 ? { judge_score: mean(scores) } : {}),
                token_weight: mean(byGroup.flatMap((own) => own.flatMap(({ byToken }) => byToken))),
              }
            : {}),
        },
      };
    },
  };
}

/** Hands the weights on as factors of each token's loss. */
export const weighted: Advantage<SolutionGroup> = {
  async credit(groups, rewards) {
    return groups.map((group, g) => ({
      ...group,
      answers: group.answers.map((answer, a) => {
        const { value, byToken } = (rewards[g] as readonly AnswerReward[])[a] as AnswerReward;
        const none = answer.tokens.map(() => 0);
        return {
          ...answer,
          reward: value,
          rewards: none,
          advantages: none,
          returns: none,
          // Without a weight there is nothing to learn, and no step is taken.
          share: byToken.some((weight) => weight > 0) ? 1 : 0,
          importance: byToken,
        };
      }),
    }));
  },
};
