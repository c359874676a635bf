/** The reward of a verdict: from the reward network's scores of both verdicts or, without a network, from the label. */
import { ratio } from '../../eval/statistics/metrics.js';
import { StepTrainError } from '../../native/errors.js';
import type { StepLabel } from '../../records/record.js';
import {
  type PairMode,
  type RewardSequence,
  scoreVerdicts,
  type VerdictScores,
} from '../../scoring/reward-network/scores.js';
import type { AdamW } from '../../train/adamw.js';
import { mean } from '../../train/policy/metrics.js';
import type { RewardSource, RolloutBatch } from '../../train/policy/records.js';
import { learningRateAt } from '../../train/schedule.js';
import type { Metrics } from '../../train/stage.js';
import { applyGradients } from '../../train/update.js';
import { centering, type PpoConfig, type RewardNetworkConfig } from './config.js';
import { comparePairs, rewardOptimizer } from './reward/compare.js';
import type { RewardUnit } from './reward/pairs.js';
import type { StepAmcRoles } from './roles.js';
import type { Question } from './rollout.js';

/**
 * Mean and standard deviation of all scores so far, for `center: running` (Welford's recurrence): of both verdicts or,
 * with `pair_mode: step`, of the steps.
 */
export interface RunningScores {
  readonly count: number;
  readonly mean: number;
  readonly squares: number;
}

export type RewardSettings = Pick<PpoConfig, 'reward_clip' | 'invalid_reward' | 'wrong_reward'> & Centering;

/** Settings that turn scores of the network into rewards. */
interface Centering {
  readonly mode: PairMode;
  readonly center: ReturnType<typeof centering>;
}

/**
 * The reward of a verdict, from the network's scores of both (or, without a network, from the label), centred and
 * clipped. An answer that is neither word gets `invalid_reward`, or what the worse word would get where that is less: it must
 * never pay to write nothing that can be read.
 *
 * @param label only without scores; config.ts refuses unlabelled steps there
 */
export function verdictReward(
  verdict: 1 | 0 | undefined,
  label: StepLabel,
  scores: VerdictScores | undefined,
  settings: RewardSettings,
  running: RunningScores,
): number {
  const { reward_clip: clip } = settings;
  if (verdict === undefined) {
    const words = ([1, 0] as const).map((word) => verdictReward(word, label, scores, settings, running));
    return Math.min(settings.invalid_reward, ...words);
  }
  if (!scores) return verdict === label ? 1 : settings.wrong_reward;
  const centred = centredScore(verdict, scores, settings, running);
  return clip > 0 ? Math.max(-clip, Math.min(clip, centred)) : centred;
}

function centredScore(
  verdict: 1 | 0,
  scores: VerdictScores,
  { mode, center }: Centering,
  running: RunningScores,
): number {
  const score = verdict === 1 ? scores.positive : scores.negative;
  switch (center) {
    case 'none':
      return score;
    case 'pair_mean':
      return score - (scores.positive + scores.negative) / 2;
    case 'running': {
      if (mode === 'label') return (score - running.mean) / deviation(running);
      // A step has one score, and is right in so far as that is above those of the others.
      const right = (scores.positive - running.mean) / deviation(running);
      return verdict === 1 ? right : -right;
    }
  }
}

function deviation({ count, squares }: RunningScores): number {
  return count > 1 && squares > 0 ? Math.sqrt(squares / (count - 1)) : 1;
}

export function withScores(running: RunningScores, scores: Iterable<number>): RunningScores {
  let { count, mean, squares } = running;
  for (const score of scores) {
    count++;
    const before = score - mean;
    mean += before / count;
    squares += before * (score - mean);
  }
  return { count, mean, squares };
}

/** Puts the reward of an answer of `length` tokens on its last token or on every one. */
export function placeReward(value: number, length: number, place: PpoConfig['reward_at']): number[] {
  return Array.from({ length }, (_, t) => (place === 'every' || t === length - 1 ? value : 0));
}

/** Rewards from the labels themselves (`ablation.no_reward_network`). */
export function labelRewards(ppo: PpoConfig): RewardSource<Question> {
  const settings = { ...ppo, mode: 'label', center: 'none' } as const;
  return {
    async reward(questions) {
      return { byGroup: placed(questions, () => undefined, settings, NO_SCORES), metrics: {} };
    },
  };
}

const NO_SCORES: RunningScores = { count: 0, mean: 0, squares: 0 };

export interface NetworkRewardOptions {
  readonly roles: StepAmcRoles;
  readonly ppo: PpoConfig;
  readonly network: RewardNetworkConfig;
  /** Input sequences of the network, by item. */
  readonly sequences: readonly RewardSequence[];
  /** The pairs among some items, for `reward_network.update: joint`. */
  readonly unitsAmong: (items: readonly number[]) => readonly RewardUnit[];
  /** Units of the solutions `items` with the reasons that the policy wrote; set where answers have reasons. */
  readonly reasoned?:
    | ((items: readonly number[], questions: readonly Question[]) => RewardUnit[])
    | undefined;
  readonly microBatchTokens: number;
  readonly iterations: number;
  /** Max consecutive non-finite steps before the run stops. */
  readonly maxSkipped: number;
}

/** Rewards from the network, which with `reward_network.update: joint` learns from every rollout batch. */
export class NetworkRewards implements RewardSource<Question> {
  readonly optimizers: Readonly<Record<string, AdamW>>;
  private running = NO_SCORES;
  /** Consecutive non-finite steps of joint training. */
  private skipped = 0;
  /** The pairs of the last rollout batch, where answers have reasons. */
  private reasoned: readonly RewardUnit[] | undefined;

  constructor(private readonly options: NetworkRewardOptions) {
    const { roles, network } = options;
    this.optimizers = network.update === 'joint' ? { network: rewardOptimizer(roles, network) } : {};
  }

  async reward(questions: readonly Question[], { items, signal }: RolloutBatch) {
    const { roles, ppo, network, sequences, microBatchTokens } = this.options;
    const mode = network.pair_mode;
    this.reasoned = this.options.reasoned?.(items, questions);
    const read =
      this.reasoned?.flatMap((unit) => unit.sequences) ??
      items.map((item) => sequences[item] as RewardSequence);
    const found = await scoreVerdicts(roles, read, { mode, microBatchTokens, signal });
    if (!found) return undefined;
    const byItem = new Map(items.map((item, i) => [item, found[i] as VerdictScores[]]));
    const scoresOf = ({ item, place }: Question) => byItem.get(item)?.[place];
    const scores = questions.flatMap((question) => scoresOf(question) ?? []);
    this.running = withScores(
      this.running,
      scores.flatMap(({ positive, negative }) => (mode === 'step' ? [positive] : [positive, negative])),
    );
    const center = centering(network);
    const zero = mode === 'step' && center === 'running' ? this.running.mean : 0;
    return {
      byGroup: placed(questions, scoresOf, { ...ppo, mode, center }, this.running),
      metrics: networkMetrics(questions, scoresOf, zero),
    };
  }

  /** One step of the network on the solutions of the rollout batch. */
  async learn({ items, iteration }: RolloutBatch): Promise<{ metrics: Metrics; tokens: number }> {
    const optimizer = this.optimizers.network;
    if (!optimizer) return { metrics: {}, tokens: 0 };
    const { roles, unitsAmong, network, microBatchTokens, iterations, maxSkipped } = this.options;
    const units = this.reasoned ?? unitsAmong(items);
    if (units.every(({ pairs }) => pairs.length === 0)) return { metrics: {}, tokens: 0 };
    const { metrics, tokens } = await comparePairs(roles, units, {
      settings: network,
      microBatchTokens,
      train: {},
    });
    const rate = learningRateAt(iteration, { ...network, totalSteps: iterations });
    const update = await applyGradients(optimizer, rate, { reward_network_loss: metrics.loss });
    if (update.nonFinite !== undefined) {
      this.skipped++;
      if (this.skipped < maxSkipped) return { metrics: { reward_network_skipped: this.skipped }, tokens };
      throw new StepTrainError(
        'E_NONFINITE',
        `${this.skipped} steps in a row of the reward network were not finite, last in ${update.nonFinite}; lower ` +
          'reward_network.learning_rate, or set reward_network.update: frozen and resume',
      );
    }
    this.skipped = 0;
    return {
      metrics: {
        reward_network_loss: metrics.loss,
        reward_network_pair_accuracy: metrics.pair_accuracy,
        reward_network_skipped: 0,
      },
      tokens,
    };
  }

  state(): unknown {
    return { running: this.running, skipped: this.skipped };
  }

  restore(state: unknown): void {
    const saved = state as { readonly running: RunningScores; readonly skipped: number };
    this.running = saved.running;
    this.skipped = saved.skipped;
  }
}

function placed(
  questions: readonly Question[],
  scoresOf: (question: Question) => VerdictScores | undefined,
  settings: RewardSettings & Pick<PpoConfig, 'reward_at'>,
  running: RunningScores,
) {
  return questions.map((question) =>
    question.answers.map(({ verdict, tokens }) => {
      const value = verdictReward(verdict, question.label, scoresOf(question), settings, running);
      return { value, byToken: placeReward(value, tokens.length, settings.reward_at) };
    }),
  );
}

/**
 * Metrics of how well the network separates right from wrong verdicts.
 *
 * @param zero the score from which a step is right, with `pair_mode: step`
 */
function networkMetrics(
  questions: readonly Question[],
  scoresOf: (question: Question) => VerdictScores | undefined,
  zero: number,
): Metrics {
  const margins = questions.flatMap((question) => {
    const scores = scoresOf(question);
    return scores && question.label !== null
      ? [(question.label === 1 ? 1 : -1) * (scores.positive - scores.negative - 2 * zero)]
      : [];
  });
  if (margins.length === 0) return {};
  return {
    reward_margin: mean(margins),
    reward_accuracy: ratio(margins.filter((margin) => margin > 0).length, margins.length),
  };
}
