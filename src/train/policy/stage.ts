/** Space-constrained policy optimisation (StepAMC, arXiv 2503.18432): PPO on verdicts, with the verdict constraint. */
import type { TrainableParameters } from '../../autograd/parameters.js';
import type { StepAmcRunConfig } from '../../config/schema.js';
import type { Dataset } from '../../data/dataset.js';
import type { VerdictTokenizer } from '../../data/verdict.js';
import { StepTrainError } from '../../native/errors.js';
import { epochOrder, planBatches } from '../../sequences/batching.js';
import type { VerdictSequence } from '../../sequences/sequence.js';
import { AdamW, adamSettings } from '../adamw.js';
import type { RewardUnit } from '../reward/pairs.js';
import { type RewardSequence, scoreVerdicts, type VerdictScores } from '../reward/score.js';
import { comparePairs, rewardOptimizer } from '../reward/stage.js';
import { type StepAmcRoles, VALUE_HEAD } from '../roles.js';
import { learningRateAt } from '../schedule.js';
import type { Stage, StagePlan, StepOutcome } from '../stage.js';
import { applyGradients } from '../update.js';
import { AlphaBalance } from './alpha.js';
import { type CreditedQuestion, credit, type RunningScores, verdictReward, withScores } from './credit.js';
import { describeRollout } from './figures.js';
import { rollOut } from './rollout.js';
import { policyGradients } from './update.js';

export interface PolicyStageOptions {
  readonly roles: StepAmcRoles;
  readonly config: Pick<StepAmcRunConfig, 'ppo' | 'frn' | 'constraint' | 'ablation'>;
  readonly tokenizer: Pick<VerdictTokenizer, 'template' | 'tailIds'>;
  readonly sequences: Dataset<VerdictSequence>;
  /** As the reward network reads them; empty without one. */
  readonly rewardSequences: readonly RewardSequence[];
  /** The pairs among some solutions, for `frn.update: joint`. */
  readonly unitsAmong: (solutions: readonly number[]) => readonly RewardUnit[];
  readonly microBatchTokens: number;
  readonly seed: number;
  /** Steps in a row that may be not finite before the run stops. */
  readonly maxSkipped: number;
  readonly validate?: Stage['validate'];
  /** Called once for each rollout batch, after its first step. */
  readonly onRollout?: (questions: readonly CreditedQuestion[], iteration: number) => void;
}

/** Where the policy's sampling and order of mini-batches take their random numbers from, apart from the warm-up's. */
const POLICY_SEED = 0x9907;

interface RolloutBatch {
  readonly questions: readonly CreditedQuestion[];
  readonly figures: Readonly<Record<string, number>>;
}

export function policyStage(options: PolicyStageOptions): StagePlan {
  const { sequences, microBatchTokens } = options;
  const { ppo } = options.config;
  const iterations = planIterations(options);
  const stepsOf = (solutions: readonly number[]) => ppo.num_ppo_epochs * miniBatchCount(options, solutions);
  const starts = [0];
  for (const solutions of iterations.batches) starts.push((starts.at(-1) as number) + stepsOf(solutions));
  return {
    name: 'ppo',
    steps: starts.at(-1) as number,
    schedule: { ...ppo, best: ppo.load_best_model_at_end ? 'f1_macro' : undefined },
    plan: {
      'ppo.rollout_batch': ppo.rollout_batch,
      'ppo.num_ppo_epochs': ppo.num_ppo_epochs,
      'ppo.num_mini_batches': ppo.num_mini_batches,
      'ppo.micro_batch_tokens': microBatchTokens,
      'ppo.solutions': sequences.length,
    },
    open: () => new PolicyStage(options, iterations, starts),
  };
}

/** Tokens of all forward-and-backward passes of the policy, for baselines that are to have as many. */
export function policyTokens(options: PolicyStageOptions): number {
  const { batches } = planIterations(options);
  const tokens = batches.flat().reduce((sum, i) => sum + lengthOf(options, i), 0);
  return tokens * options.config.ppo.num_ppo_epochs;
}

type Iterations = ReturnType<typeof planBatches>;

/** Which solutions make up each rollout batch. */
function planIterations({ sequences, config, seed }: PolicyStageOptions): Iterations {
  const { ppo } = config;
  const asked = Array.from(
    sequences,
    ({ verdicts }) => verdicts.filter(({ label }) => label !== null).length,
  );
  return planBatches(
    asked.flatMap((count, i) => (count > 0 ? [i] : [])),
    {
      epochs: ppo.num_train_epochs,
      maxBatches: ppo.max_iterations > 0 ? ppo.max_iterations : undefined,
      seed: (seed ^ POLICY_SEED) >>> 0,
      sizeOf: (i) => asked[i] as number,
      tokensOf: (i) => sequences.get(i).ids.length,
      batchSize: ppo.rollout_batch,
    },
  );
}

function lengthOf({ sequences }: PolicyStageOptions, solution: number): number {
  return sequences.get(solution).ids.length;
}

function miniBatchCount({ config }: PolicyStageOptions, solutions: readonly number[]): number {
  return Math.min(config.ppo.num_mini_batches, solutions.length);
}

class PolicyStage implements Stage {
  readonly optimizers: Readonly<Record<string, AdamW>>;
  readonly trains: TrainableParameters;
  readonly validate: Stage['validate'];
  private readonly alpha: AlphaBalance;
  private running: RunningScores = { count: 0, mean: 0, squares: 0 };
  private rollout: RolloutBatch | undefined;
  /** Steps in a row of a jointly trained reward network that were not finite. */
  private rewardSkips = 0;

  constructor(
    private readonly options: PolicyStageOptions,
    private readonly iterations: Iterations,
    /** First step of each iteration; the last entry is the number of steps. */
    private readonly starts: readonly number[],
  ) {
    const { roles, config } = options;
    this.trains = roles.policyParameters;
    this.validate = options.validate;
    this.alpha = new AlphaBalance(config.constraint, starts.at(-1) as number);
    const { head_rate: headRate } = config.ppo;
    const policy = new AdamW(roles.policyParameters, {
      ...adamSettings(config.ppo),
      rateOf: (name) => (name.startsWith(VALUE_HEAD) ? headRate : 1),
    });
    const joint = config.frn.update === 'joint' && !config.ablation.no_frn;
    this.optimizers = joint ? { ppo: policy, frn: rewardOptimizer(roles, config.frn) } : { ppo: policy };
  }

  async begin(): Promise<void> {
    await this.options.roles.keepReference();
  }

  async step(index: number, signal: AbortSignal): Promise<StepOutcome | undefined> {
    const { options, starts } = this;
    const { config, roles, tokenizer, sequences, microBatchTokens } = options;
    const iteration = starts.findLastIndex((start) => start <= index);
    const within = index - (starts[iteration] as number);
    if (within === 0) this.rollout = undefined;
    this.rollout ??= await this.makeRollout(iteration, signal);
    if (!this.rollout) return undefined;
    const { questions } = this.rollout;
    const began = performance.now();
    const batch = this.miniBatch(iteration, within);
    const weights = config.ablation.no_scpn
      ? { policy: 1, value: 1, constraint: 0 }
      : this.alpha.weights(index);
    const { losses, figures, tokens } = await policyGradients({
      roles,
      settings: config.ppo,
      constraint: config.constraint,
      tokenizer,
      sequences,
      questions: questions.filter(({ solution }) => batch.has(solution)),
      weights,
      microBatchTokens,
    });
    const learningRate = learningRateAt(index, { ...config.ppo, totalSteps: starts.at(-1) as number });
    const loss =
      weights.policy * losses.policy + weights.value * losses.value + weights.constraint * losses.constraint;
    const update = await applyGradients(this.optimizers.ppo as AdamW, learningRate, {
      policy_loss: losses.policy,
      value_loss: losses.value,
      constraint_loss: losses.constraint,
    });
    const shown = { loss, reward: this.rollout.figures.reward_mean ?? 0, kl: figures.kl_k3 ?? 0 };
    if (update.nonFinite !== undefined) return { figures: {}, shown, tokens, nonFinite: update.nonFinite };
    if (within === 0) options.onRollout?.(questions, iteration);
    const alpha = this.alpha.value(index);
    if (!config.ablation.no_scpn) this.alpha.learn(losses);
    return {
      figures: {
        iteration,
        epoch: this.iterations.epochAt(iteration + 1),
        loss,
        constraint_weight: weights.constraint,
        ...(config.ablation.no_scpn ? {} : { alpha }),
        ...figures,
        ...this.rollout.figures,
        grad_norm: update.gradNorm,
        learning_rate: learningRate,
        update_seconds: (performance.now() - began) / 1000,
      },
      shown,
      tokens,
    };
  }

  private async makeRollout(iteration: number, signal: AbortSignal): Promise<RolloutBatch | undefined> {
    const { options } = this;
    const { config, roles, tokenizer, sequences, microBatchTokens, seed } = options;
    const chosen = this.iterations.batches[iteration] as readonly number[];
    const began = performance.now();
    const asked = await rollOut(sequences, chosen, {
      roles,
      template: tokenizer.template,
      tailIds: tokenizer.tailIds,
      settings: config.ppo,
      microBatchTokens,
      seed: (seed ^ POLICY_SEED) >>> 0,
      iteration,
      signal,
    });
    if (!asked) return undefined;
    const rolled = performance.now();
    const scores = config.ablation.no_frn ? new Map() : await this.scores(chosen, signal);
    if (!scores) return undefined;
    const scoresOf = (solution: number, place: number): VerdictScores | undefined =>
      scores.get(solution)?.[place];
    const judged = asked.flatMap(({ solution, place }) => scoresOf(solution, place) ?? []);
    this.running = withScores(
      this.running,
      judged.flatMap(({ positive, negative }) => [positive, negative]),
    );
    const settings = { ...config.ppo, center: config.frn.center };
    const rewards = asked.map(({ solution, place, label, answers }) =>
      answers.map((answer) =>
        verdictReward(answer.verdict, label, scoresOf(solution, place), settings, this.running),
      ),
    );
    const questions = await credit(roles.decoder.device, asked, rewards, config.ppo);
    const joint = await this.trainReward(chosen, iteration);
    return {
      questions,
      figures: {
        ...describeRollout(
          questions,
          asked.map(({ solution, place }) => scoresOf(solution, place)),
        ),
        ...joint,
        rollout_seconds: (rolled - began) / 1000,
        reward_seconds: (performance.now() - rolled) / 1000,
      },
    };
  }

  private async scores(
    chosen: readonly number[],
    signal: AbortSignal,
  ): Promise<Map<number, VerdictScores[]> | undefined> {
    const { roles, rewardSequences, config, microBatchTokens } = this.options;
    const found = await scoreVerdicts(
      roles,
      chosen.map((solution) => rewardSequences[solution] as RewardSequence),
      { mode: config.frn.pair_mode, microBatchTokens, signal },
    );
    return found && new Map(chosen.map((solution, i) => [solution, found[i] as VerdictScores[]]));
  }

  /** `frn.update: joint`: one step of the reward network on the solutions of the rollout batch. */
  private async trainReward(chosen: readonly number[], iteration: number): Promise<Record<string, number>> {
    const optimizer = this.optimizers.frn;
    if (!optimizer) return {};
    const { roles, unitsAmong, config, microBatchTokens } = this.options;
    const units = unitsAmong(chosen);
    if (units.every(({ pairs }) => pairs.length === 0)) return {};
    const { figures } = await comparePairs(roles, units, {
      settings: config.frn,
      microBatchTokens,
      train: {},
    });
    const rate = learningRateAt(iteration, { ...config.frn, totalSteps: this.iterations.batches.length });
    const update = await applyGradients(optimizer, rate, { frn_loss: figures.loss });
    if (update.nonFinite !== undefined) {
      this.rewardSkips++;
      if (this.rewardSkips < this.options.maxSkipped) return { frn_skipped: this.rewardSkips };
      throw new StepTrainError(
        'E_NONFINITE',
        `${this.rewardSkips} steps in a row of the reward network were not finite, last in ${update.nonFinite}; lower ` +
          'frn.learning_rate, or set frn.update: frozen and resume',
      );
    }
    this.rewardSkips = 0;
    return { frn_loss: figures.loss, frn_pair_accuracy: figures.pair_accuracy, frn_skipped: 0 };
  }

  /** The solutions of mini-batch `within` of an iteration; each pass over the rollout deals them anew. */
  private miniBatch(iteration: number, within: number): ReadonlySet<number> {
    const solutions = this.iterations.batches[iteration] as readonly number[];
    const count = miniBatchCount(this.options, solutions);
    const pass = Math.floor(within / count);
    const seed = (this.options.seed ^ POLICY_SEED ^ ((iteration + 1) * 0x9e3779b1)) >>> 0;
    const order = Array.from(epochOrder(solutions.length, seed, pass), (i) => solutions[i] as number);
    const part = within % count;
    const cut = (share: number) => Math.round((share * order.length) / count);
    return new Set(order.slice(cut(part), cut(part + 1)));
  }

  state(): unknown {
    const { running, rollout, rewardSkips } = this;
    return { alpha: this.alpha.save(), running, rollout, rewardSkips };
  }

  restore(state: unknown): void {
    const saved = state as {
      readonly alpha: unknown;
      readonly running: RunningScores;
      readonly rollout?: RolloutBatch;
      readonly rewardSkips: number;
    };
    this.alpha.restore(saved.alpha);
    this.running = saved.running;
    this.rollout = saved.rollout;
    this.rewardSkips = saved.rewardSkips;
  }

  dispose(): void {
    for (const optimizer of Object.values(this.optimizers)) optimizer.dispose();
  }
}
