/** The metrics logged for every rollout batch. */
import { ratio } from '../../eval/statistics/metrics.js';
import { square } from '../../native/elementary.js';
import { RemoteError } from '../../remote/errors.js';
import type { Metrics } from '../stage.js';
import type { Answer, CreditedGroup, Group } from './records.js';

/**
 * Rewards, how well the values predicted the returns, and {@link samplerDifference}.
 *
 * @param weightOf of an answer among the rewards. Default: its share; where answers are sampled, those that nothing is learned from count too
 */
export function rolloutMetrics<G extends Group>(
  groups: readonly CreditedGroup<G>[],
  weightOf: (answer: CreditedGroup<G>['answers'][number]) => number = ({ share }) => share,
): Metrics {
  const answers = groups.flatMap(({ answers }) => answers);
  if (answers.length === 0) return {};
  const rewards = answers.map((answer) => ({ value: answer.reward, weight: weightOf(answer) }));
  const reward = moments(rewards);
  const returns = answers.flatMap((answer) => answer.returns);
  const values = answers.flatMap((answer) => answer.values);
  return {
    reward_mean: reward.mean,
    reward_std: Math.sqrt(reward.variance),
    reward_min: Math.min(...rewards.map(({ value }) => value)),
    reward_max: Math.max(...rewards.map(({ value }) => value)),
    ...(values.length > 0
      ? { value_mean: mean(values), explained_variance: explainedVariance(values, returns) }
      : {}),
    ...samplerDifference(groups),
    ...staleness(answers),
  };
}

/** The most of an answer. */
function staleness(answers: readonly Answer[]): Metrics {
  const known = answers.flatMap((answer) => answer.staleness ?? []);
  return known.length > 0 ? { staleness: Math.max(...known) } : {};
}

/**
 * Difference between sampler and training forward in nats, also for each server; empty where nothing was sampled or
 * scored.
 */
export function samplerDifference(groups: readonly Group[]): Metrics {
  const scored = groups.flatMap(({ answers }) => answers).filter(({ oldLogprobs }) => oldLogprobs.length > 0);
  const servers = scored.flatMap(({ server }) => (server === undefined ? [] : [server]));
  const numbers = [...new Set(servers)].sort((a, b) => a - b);
  return Object.assign(
    difference('sampler_difference', scored),
    ...numbers.map((number) =>
      difference(
        `sampler_difference_server_${number}`,
        scored.filter(({ server }) => server === number),
      ),
    ),
  );
}

/**
 * Refuses samples of another policy: a server that answers as if it had loaded the adapter, but samples from an older
 * one or none, is recognized only by its log-probs.
 *
 * @param metrics with those of `samplerDifference`
 * @throws RemoteError where samples are not those of the policy
 */
export function refuseOtherSampler(metrics: Metrics, most = Number.POSITIVE_INFINITY): void {
  for (const { value, server } of differences(metrics)) {
    if (value <= most) continue;
    throw new RemoteError(
      `rollout.server: the log-probs of ${sampler(server)} differ by ${value.toPrecision(3)} ` +
        `nats a token from those of the policy, more than rollout.server.max_difference ${most}: the server has not taken the adapter of ` +
        'this batch, or has another base. Nothing was learned from it; mend the server and go on with --resume, or raise the key',
    );
  }
}

/** Below it, in nats, no server is suspected. */
const SUSPECT = 0.01;
/** Rounding grows less while a policy learns. */
const GROWTH = 10;

/** A warning on a server that drifts away from the policy: it may sample from an adapter of before. */
export class SamplerDrift {
  private hasWarned = false;

  /** @param first the differences of the first batch by name, when server and policy were the same for certain */
  constructor(private first: Metrics = {}) {}

  /** The sentence for this batch, once; undefined where there is nothing to say. */
  observe(metrics: Metrics): string | undefined {
    const found = differences(metrics);
    this.first = { ...Object.fromEntries(found.map(({ name, value }) => [name, value])), ...this.first };
    const drifting = found.find(
      ({ name, value }) => value > Math.max(SUSPECT, GROWTH * (this.first[name] as number)),
    );
    if (!drifting || this.hasWarned) return undefined;
    this.hasWarned = true;
    const { name, value, server } = drifting;
    return (
      `rollout.server: the log-probs of ${sampler(server)} differ by ${value.toPrecision(3)} nats a token from those of the policy, and ` +
      `differed by ${(this.first[name] as number).toPrecision(3)} at first: the server may not have taken the policy of this batch; see ` +
      `${name} in metrics.jsonl`
    );
  }

  state(): Metrics {
    return this.first;
  }
}

function differences(metrics: Metrics) {
  return Object.entries(metrics).flatMap(([name, value]) => {
    const found = /^sampler_difference(?:_server_(\d+))?$/.exec(name);
    return found && value !== undefined ? [{ name, value, server: found[1] }] : [];
  });
}

const sampler = (server: string | undefined) => (server === undefined ? 'its samples' : `server ${server}`);

function difference(name: string, answers: readonly Answer[]): Metrics {
  const differences = answers.flatMap(({ samplerLogprobs, oldLogprobs }) =>
    samplerLogprobs.map((logprob, t) => Math.abs(logprob - (oldLogprobs[t] as number))),
  );
  return differences.length > 0 ? { [name]: mean(differences) } : {};
}

/** 1 − Var(returns − values) / Var(returns); 0 if all returns are equal. */
function explainedVariance(values: readonly number[], returns: readonly number[]): number {
  const total = moments(returns.map((value) => ({ value, weight: 1 }))).variance;
  const left = moments(returns.map((value, i) => ({ value: value - (values[i] as number), weight: 1 })));
  return total === 0 ? 0 : 1 - left.variance / total;
}

function moments(items: readonly { readonly value: number; readonly weight: number }[]) {
  const mass = items.reduce((sum, { weight }) => sum + weight, 0);
  const average = ratio(
    items.reduce((sum, { value, weight }) => sum + weight * value, 0),
    mass,
  );
  const squares = items.reduce((sum, { value, weight }) => sum + weight * square(value - average), 0);
  return { mean: average, variance: ratio(squares, mass) };
}

export function mean(values: readonly number[]): number {
  return ratio(
    values.reduce((sum, value) => sum + value, 0),
    values.length,
  );
}
