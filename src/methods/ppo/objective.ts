/** The policy's objective on solutions: each prompt with its solutions, and the critic's optimizer. */
import { AdamW } from '../../train/adamw.js';
import type { KlControl } from '../../train/policy/kl.js';
import { ClippedObjective } from '../../train/policy/objective.js';
import { withHeadRate } from '../../train/roles/value-head.js';
import { learningRateAt } from '../../train/schedule.js';
import type { SolutionPrompt } from '../../train/solutions/prompts.js';
import { algorithmOf } from './algorithms.js';
import type { PpoRoles } from './roles.js';
import type { CreditedSolutions, SolutionGroup } from './rollout.js';
import { answeredPrompts } from './sequences.js';
import type { PpoSettings } from './settings.js';

export interface SolutionObjectiveOptions {
  readonly roles: Pick<PpoRoles, 'decoder' | 'policy' | 'policyParameters' | 'critic'>;
  readonly settings: PpoSettings;
  readonly kl: KlControl;
  readonly promptOf: (item: number) => SolutionPrompt;
  readonly temperature: number;
  /** Max tokens of a solution, the constant that `dr_grpo` divides by. */
  readonly longest: number;
  readonly microBatchTokens: number;
  /** Steps of the stage. */
  readonly steps: number;
}

export function solutionObjective(options: SolutionObjectiveOptions): ClippedObjective<SolutionGroup> {
  const { roles, settings, kl, temperature, longest, microBatchTokens } = options;
  const { decoder, policy, critic, policyParameters } = roles;
  return new ClippedObjective({
    ...{ decoder, policy, critic, kl, longest, microBatchTokens },
    trains: [policyParameters, ...(critic?.own ? [critic.own.parameters] : [])],
    settings: { ...settings, temperature },
    ratio: algorithmOf(settings).ratio,
    surrogate: algorithmOf(settings).surrogate,
    optimizers: critic ? { critic: criticOptimizer(critic, options) } : {},
    pieces: (groups) => groups.flatMap((group) => piecesOf(group, options)),
  });
}

/** The sequences of a prompt with its solutions. */
export function piecesOf(
  { item, answers }: CreditedSolutions,
  {
    promptOf,
    settings: { branches },
    microBatchTokens: budget,
  }: Pick<SolutionObjectiveOptions, 'promptOf' | 'microBatchTokens'> & {
    readonly settings: Pick<PpoSettings, 'branches'>;
  },
) {
  let at = 0;
  return answeredPrompts(promptOf(item).ids, item, answers, { budget, branches }).map((sequence) => {
    const begin = at;
    at += sequence.solutions.length;
    const rows = sequence.solutions.flatMap((solution) => solution.rows);
    return { sequence, rows, answers: answers.slice(begin, at) };
  });
}

function criticOptimizer(
  { own, trained }: NonNullable<PpoRoles['critic']>,
  { settings, steps }: SolutionObjectiveOptions,
) {
  const learning_rate = own ? settings.critic_learning_rate : settings.learning_rate;
  return {
    optimizer: new AdamW(trained, withHeadRate(settings)),
    rateAt: (step: number) => learningRateAt(step, { ...settings, learning_rate, totalSteps: steps }),
  };
}
