/** Online policy learning: each rollout batch is followed by optimizer steps on its mini-batches. */
import type { TrainableParameters } from '../../autograd/parameters.js';
import { StepTrainError } from '../../native/errors.js';
import { type BatchSchedule, epochOrder } from '../../sequences/batching.js';
import { warn } from '../../terminal/log.js';
import type { AdamW } from '../adamw.js';
import { learningRateAt, type ScheduleOptions } from '../schedule.js';
import type {
  Metrics,
  OpenTraining,
  StepPart,
  TrainingOutcome,
  TrainingSettings,
  TrainingStage,
} from '../stage.js';
import { applyGradients } from '../update.js';
import { type Columns, packRows, unpackRows } from './columns.js';
import { KlControl, type KlSettings, withKlPenalty } from './kl.js';
import { refuseOtherSampler, rolloutMetrics, SamplerDrift, samplerDifference } from './metrics.js';
import type {
  Advantage,
  CreditedGroup,
  Group,
  PolicyObjective,
  RewardSource,
  RolloutBatch,
  RolloutSource,
} from './records.js';

/** The parts of the loop that a method provides. */
const ROUNDING = 1e-12;

export interface PolicyParts<G extends Group> {
  readonly rollouts: RolloutSource<G>;
  readonly rewards: RewardSource<G>;
  readonly advantage: Advantage<G>;
  readonly objective: PolicyObjective<G>;
}

export interface PolicySettings
  extends Omit<ScheduleOptions, 'totalSteps'>,
    Omit<TrainingSettings, 'best' | 'warmup_ratio'>,
    KlSettings {
  readonly rollout_batch: number;
  readonly num_ppo_epochs: number;
  readonly num_mini_batches: number;
  readonly load_best_model_at_end: boolean;
  /** Max draws of another group if all answers have the same reward. Default 0. */
  readonly resample_equal?: number;
}

/** Between the numbers of the iterations that the first and a further draw of a group are keyed by. */
const NEXT_DRAW = 2 ** 24;

export interface PolicyStageOptions<G extends Group> {
  readonly name: string;
  readonly settings: PolicySettings;
  /** The items of each rollout batch. */
  readonly iterations: Omit<BatchSchedule, 'tokens'>;
  readonly batching: Readonly<Record<string, number>>;
  readonly trains: TrainableParameters;
  /** Made when the stage is opened. */
  readonly optimizer: () => AdamW;
  readonly parts: (steps: number, kl: KlControl) => PolicyParts<G>;
  readonly seed: number;
  /** Number of tokens that it trains on, where the data determine it. */
  readonly expectedTokens?: () => number;
  /** Rollout batches that may be sampled while the policy learns from the ones before. Default 0. */
  readonly maxStaleness?: number;
  /** `rollout.server.max_difference`. Default: any. */
  readonly maxDifference?: number | undefined;
  /** The metric of `validate` by which one evaluation is better than another: more is better. */
  readonly best?: string | undefined;
  readonly begin: () => Promise<void>;
  readonly warn?: OpenTraining['warn'];
  readonly validate?: OpenTraining['validate'];
  /** Weight of an answer in the mean of rewards. Default: its share. */
  readonly weightOf?: (answer: CreditedGroup<G>['answers'][number]) => number;
  /** Metrics of a rollout batch in addition to those of every method. */
  readonly describe?: (groups: readonly CreditedGroup<G>[]) => Metrics;
  /** Called once for each rollout batch, after its first step. */
  readonly onRollout?: (groups: readonly CreditedGroup<G>[], iteration: number) => void;
}

interface Rollout<G extends Group> {
  readonly groups: readonly CreditedGroup<G>[];
  readonly metrics: Metrics;
  /** Tokens on which the reward source learned. */
  readonly learnedTokens: number;
}

export function policyStage<G extends Group>(options: PolicyStageOptions<G>): TrainingStage {
  const { name, settings, iterations } = options;
  const starts = [0];
  for (const items of iterations.batches) {
    const steps = settings.num_ppo_epochs * miniBatchCount(settings, items);
    starts.push((starts.at(-1) as number) + steps);
  }
  return {
    name,
    steps: starts.at(-1) as number,
    settings: { ...settings, best: options.best },
    batching: {
      [`${name}.rollout_batch`]: settings.rollout_batch,
      [`${name}.num_ppo_epochs`]: settings.num_ppo_epochs,
      [`${name}.num_mini_batches`]: settings.num_mini_batches,
      ...options.batching,
    },
    ...(options.expectedTokens ? { expectedTokens: options.expectedTokens } : {}),
    open: () => new PolicyStage(options, starts),
  };
}

function miniBatchCount({ num_mini_batches: count }: PolicySettings, items: readonly number[]): number {
  return Math.min(count, items.length);
}

/**
 * Says which rollout batches have fewer items than mini-batches are asked for; undefined where none has.
 *
 * @param key the key of the configuration
 * @param noun what mini-batches keep whole, such as `problems`
 */
export function fewMiniBatches(
  { settings, iterations: { batches } }: Pick<PolicyStageOptions<Group>, 'settings' | 'iterations'>,
  { key, noun }: { readonly key: string; readonly noun: string },
): string | undefined {
  const { num_mini_batches: count } = settings;
  const few = [...batches].filter((items) => miniBatchCount(settings, items) < count).length;
  if (few === 0) return undefined;
  return (
    `${key} is ${count}, and ${few} of ${batches.length} rollout batches ${few === 1 ? 'has' : 'have'} fewer ${noun}, which stay whole: there are as ` +
    `many optimizer steps there as ${noun}`
  );
}

class PolicyStage<G extends Group> implements OpenTraining {
  readonly optimizers: Readonly<Record<string, AdamW>>;
  readonly trains: TrainableParameters;
  readonly warn: OpenTraining['warn'];
  readonly validate: OpenTraining['validate'];
  private readonly parts: PolicyParts<G>;
  private readonly kl: KlControl;
  private rollout: Rollout<G> | undefined;
  /** Whether nothing more is learned from the current rollout batch. */
  private enough = false;
  private drift = new SamplerDrift();

  constructor(
    private readonly options: PolicyStageOptions<G>,
    /** First step of each iteration; the last entry is the number of steps. */
    private readonly starts: readonly number[],
  ) {
    this.trains = options.trains;
    this.warn = options.warn;
    this.validate = options.validate;
    this.kl = new KlControl(options.settings);
    this.parts = options.parts(starts.at(-1) as number, this.kl);
    const beside = Object.entries(this.parts.objective.optimizers ?? {});
    this.optimizers = {
      [options.name]: options.optimizer(),
      ...this.parts.rewards.optimizers,
      ...Object.fromEntries(beside.map(([key, { optimizer }]) => [key, optimizer])),
    };
  }

  begin(): Promise<void> {
    return this.options.begin();
  }

  async step(
    index: number,
    signal: AbortSignal,
    report?: (part: StepPart) => void,
  ): Promise<TrainingOutcome | undefined> {
    const { options, starts, parts } = this;
    const { name, settings, iterations } = options;
    const iteration = starts.findLastIndex((start) => start <= index);
    const within = index - (starts[iteration] as number);
    if (within === 0) {
      this.rollout = undefined;
      this.enough = false;
    }
    const serves = (starts[iteration + 1] as number) - (starts[iteration] as number);
    this.rollout ??= await this.rollOut(iteration, {
      signal,
      report: report && ((part) => report({ ...part, serves })),
    });
    if (!this.rollout) return undefined;
    const { groups, learnedTokens } = this.rollout;
    let { metrics } = this.rollout;
    const beside = within === 0 ? learnedTokens : 0;
    const began = performance.now();
    const batch = this.miniBatch(iteration, within);
    const chosen = groups.filter(
      ({ item, answers }) => batch.has(item) && answers.some(({ share }) => share > 0),
    );
    // Nothing was answered, every answer is masked, a source left every group out, or enough was learned: no step is taken, since
    // one without gradients would still decay weights and follow old momentum.
    const left = { metrics: { iteration, ...metrics }, shown: {}, tokens: beside };
    if (chosen.length === 0 || this.enough) return left;
    const gradients = await parts.objective.gradients(chosen, index);
    const { scored } = gradients;
    if (scored) metrics = { ...metrics, ...samplerDifference(scored), ...this.kl.observe(scored) };
    // Later passes differ by the updates since.
    if (within === 0) {
      refuseOtherSampler(metrics, options.maxDifference);
      // Samples of an older policy are expected to differ where they are drawn ahead.
      const drift = options.maxDifference && !options.maxStaleness ? this.drift.observe(metrics) : undefined;
      if (drift !== undefined) warn(drift);
    }
    if (gradients.enough) {
      this.enough = true;
      return { ...left, metrics: { ...left.metrics, ...gradients.metrics, stopped_by_kl: 1 } };
    }
    const learningRate = learningRateAt(index, { ...settings, totalSteps: starts.at(-1) as number });
    const update = gradients.policyWaits
      ? { gradNorm: 0 }
      : await applyGradients(this.optimizers[name] as AdamW, learningRate, gradients.terms);
    const { loss } = gradients;
    const tokens = gradients.tokens + beside;
    const { reward_mean: reward = 0, right } = metrics;
    const shown = {
      loss,
      // Whitened rewards have a mean of 0 but for rounding.
      reward: Math.abs(reward) < ROUNDING ? 0 : reward,
      ...(right === undefined ? {} : { right }),
      ...gradients.shown,
    };
    if (update.nonFinite !== undefined) return { metrics: {}, shown, tokens, nonFinite: update.nonFinite };
    const own = await this.updateBeside(index, gradients.terms);
    if (own.nonFinite !== undefined) return { metrics: {}, shown, tokens, nonFinite: own.nonFinite };
    if (within === 0) options.onRollout?.(scored ?? groups, iteration);
    parts.objective.applied?.(gradients);
    return {
      metrics: {
        iteration,
        epoch: iterations.epochAt(iteration + 1),
        loss,
        ...gradients.metrics,
        ...metrics,
        grad_norm: update.gradNorm,
        ...own.metrics,
        learning_rate: learningRate,
        update_seconds: (performance.now() - began) / 1000,
      },
      shown,
      tokens,
    };
  }

  private async rollOut(
    iteration: number,
    told: Pick<RolloutBatch, 'signal' | 'report'>,
  ): Promise<Rollout<G> | undefined> {
    const { options, parts } = this;
    const { maxStaleness: most = 0, iterations } = options;
    const { batches } = iterations;
    const count = Math.max(0, Math.min(most, batches.length - iteration - 1));
    const next = Array.from({ length: count }, (_, i) => batches.get(iteration + 1 + i));
    const batch: RolloutBatch = {
      items: batches.get(iteration),
      iteration,
      ...told,
      ...(most > 0 ? { ahead: next.map((items, i) => ({ items, iteration: iteration + 1 + i })) } : {}),
    };
    const began = performance.now();
    const drawn = await this.drawn(batch);
    if (!drawn) return undefined;
    const { rolled, rewards, resampled, judging } = drawn;
    const { inReward: coefficient, estimator } = this.kl;
    const penalised = rolled.map(({ answers }, g) => {
      const own = rewards.byGroup[g] ?? [];
      if (own.length !== answers.length) {
        throw new StepTrainError(
          'E_SHAPE',
          `the reward source gave ${own.length} rewards for the ${answers.length} answers of group ${g}`,
        );
      }
      return own.map((reward, a) =>
        coefficient === 0
          ? reward
          : withKlPenalty(answers[a] as G['answers'][number], reward, coefficient, estimator),
      );
    });
    const groups = await parts.advantage.credit(rolled, penalised);
    const learned = await parts.rewards.learn?.(batch);
    return {
      groups,
      learnedTokens: learned?.tokens ?? 0,
      metrics: {
        ...options.describe?.(groups),
        ...rolloutMetrics(groups, options.weightOf),
        ...this.kl.observe(groups),
        ...rewards.metrics,
        ...(options.settings.resample_equal ? { resampled_groups: resampled } : {}),
        ...learned?.metrics,
        rollout_seconds: (judging - began) / 1000,
        reward_seconds: (performance.now() - judging) / 1000,
      },
    };
  }

  /**
   * Answers and their rewards. Groups of equal rewards, length and form aside, are drawn again (dynamic sampling, arXiv 2503.14476, which takes other questions);
   * every draw is rewarded with the whole batch, which rewards may be normalised over.
   */
  private async drawn(batch: RolloutBatch) {
    const { parts, options } = this;
    let rolled = await parts.rollouts.rollOut(batch);
    let [judging, resampled] = [performance.now(), 0];
    let rewards = rolled && (await parts.rewards.reward(rolled, batch));
    for (let draw = 1; draw <= (options.settings.resample_equal ?? 0); draw++) {
      if (!rolled || !rewards) break;
      const { byGroup } = rewards;
      const equal = rolled.filter(
        (_, g) => new Set(byGroup[g]?.map(({ value, outcome }) => outcome ?? value)).size === 1,
      );
      if (equal.length === 0) break;
      const items = equal.map(({ item }) => item);
      const iteration = batch.iteration + draw * NEXT_DRAW;
      const again = await parts.rollouts.rollOut({ ...batch, items, iteration });
      const others = again && new Map(again.map((group) => [group.item, group]));
      rolled = others && rolled.map((group) => others.get(group.item) ?? group);
      resampled += equal.length;
      judging = performance.now();
      rewards = rolled && (await parts.rewards.reward(rolled, batch));
    }
    return rolled && rewards ? { rolled, rewards, resampled, judging } : undefined;
  }

  /** Updates the parameters other than the policy's. */
  private async updateBeside(
    step: number,
    terms: Metrics,
  ): Promise<{ readonly nonFinite?: string; readonly metrics: Metrics }> {
    const metrics: Record<string, number> = {};
    for (const [name, { optimizer, rateAt }] of Object.entries(this.parts.objective.optimizers ?? {})) {
      const update = await applyGradients(optimizer, rateAt(step), terms);
      if (update.nonFinite !== undefined) return { nonFinite: update.nonFinite, metrics };
      metrics[`${name}_grad_norm`] = update.gradNorm;
    }
    return { metrics };
  }

  /** The items of mini-batch `within` of an iteration; each pass over the rollout shuffles them again. */
  private miniBatch(iteration: number, within: number): ReadonlySet<number> {
    const items = this.options.iterations.batches.get(iteration);
    const count = miniBatchCount(this.options.settings, items);
    const pass = Math.floor(within / count);
    const seed = (this.options.seed ^ ((iteration + 1) * 0x9e3779b1)) >>> 0;
    const order = Array.from(epochOrder(items.length, seed, pass), (i) => items[i] as number);
    const part = within % count;
    const cut = (share: number) => Math.round((share * order.length) / count);
    return new Set(order.slice(cut(part), cut(part + 1)));
  }

  state(): unknown {
    const { rewards, objective } = this.parts;
    const rollout = this.rollout && { ...this.rollout, groups: packRows(this.rollout.groups) };
    return {
      rewards: rewards.state?.(),
      objective: objective.state?.(),
      kl: this.kl.state(),
      enough: this.enough,
      drift: this.drift.state(),
      rollout,
    };
  }

  restore(state: unknown): void {
    const saved = state as {
      readonly rewards?: unknown;
      readonly objective?: unknown;
      readonly kl: unknown;
      readonly enough: boolean;
      readonly drift?: Metrics;
      readonly rollout?: Omit<Rollout<G>, 'groups'> & { readonly groups: Columns };
    };
    this.parts.rewards.restore?.(saved.rewards);
    this.parts.objective.restore?.(saved.objective);
    this.kl.restore(saved.kl);
    this.enough = saved.enough;
    this.drift = new SamplerDrift(saved.drift);
    this.rollout = saved.rollout && { ...saved.rollout, groups: unpackRows(saved.rollout.groups) };
  }

  dispose(): void {
    this.parts.rollouts.dispose?.();
    for (const optimizer of Object.values(this.optimizers)) optimizer.dispose();
  }
}
