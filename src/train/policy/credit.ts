/** From scores to what each token of an answer is credited with: rewards, advantages and returns. */
import type { FrnConfig, PpoConfig } from '../../config/schema.js';
import { gae, whiten } from '../../ops/advantage.js';
import type { Device } from '../../runtime/device.js';
import type { VerdictScores } from '../reward/score.js';
import type { Answer, Question } from './rollout.js';

/** An answer with its credit; arrays are by token. */
export interface CreditedAnswer extends Answer {
  /** Of the answer as a whole, before the KL penalty. */
  readonly reward: number;
  readonly rewards: readonly number[];
  readonly advantages: readonly number[];
  readonly returns: readonly number[];
  /** How much it counts: 1 when sampled, its probability when enumerated. */
  readonly share: number;
}

export interface CreditedQuestion extends Question {
  readonly answers: readonly CreditedAnswer[];
}

/** Mean and deviation of all scores so far, for `center: running` (Welford's recurrence). */
export interface RunningScores {
  readonly count: number;
  readonly mean: number;
  readonly squares: number;
}

export type RewardSettings = Pick<PpoConfig, 'reward_clip' | 'invalid_reward' | 'wrong_reward'> &
  Pick<FrnConfig, 'center'>;

/**
 * The reward of a verdict, from the network's scores of both (or, without a network, from the label), centred and
 * clipped. An answer that is neither word has `invalid_reward`.
 */
export function verdictReward(
  verdict: 1 | 0 | undefined,
  label: 1 | 0,
  scores: VerdictScores | undefined,
  settings: RewardSettings,
  running: RunningScores,
): number {
  const { reward_clip: clip, center } = settings;
  if (verdict === undefined) return settings.invalid_reward;
  if (!scores) return verdict === label ? 1 : settings.wrong_reward;
  const score = verdict === 1 ? scores.positive : scores.negative;
  const centred =
    center === 'pair_mean'
      ? score - (scores.positive + scores.negative) / 2
      : center === 'running'
        ? (score - running.mean) / deviation(running)
        : score;
  return clip > 0 ? Math.max(-clip, Math.min(clip, centred)) : centred;
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

export type CreditSettings = Pick<
  PpoConfig,
  'gamma' | 'lam' | 'reward_at' | 'kl_in' | 'kl_coef' | 'whiten_advantages' | 'rollout'
>;

/** Places the reward of each answer on its tokens: the last one or every one, less the KL penalty where it is due. */
export function tokenRewards(
  answer: Pick<Answer, 'oldLogprobs' | 'refLogprobs'>,
  reward: number,
  { reward_at: place, kl_in: klIn, kl_coef: klCoef }: CreditSettings,
): number[] {
  const last = answer.oldLogprobs.length - 1;
  return answer.oldLogprobs.map((logprob, t) => {
    const penalty = klIn === 'reward' ? klCoef * (logprob - (answer.refLogprobs[t] as number)) : 0;
    return (place === 'every' || t === last ? reward : 0) - penalty;
  });
}

/**
 * Credits a rollout batch. Sampled answers get advantages by GAE, whitened over the batch if asked. Enumerated ones
 * have their probability as share, and as advantage the distance from the expectation over the question's answers.
 *
 * @param rewards by question and answer
 */
export async function credit(
  device: Device,
  questions: readonly Question[],
  rewards: readonly (readonly number[])[],
  settings: CreditSettings,
): Promise<CreditedQuestion[]> {
  const shares = questions.map(({ answers }) => sharesOf(answers, settings));
  const placed = questions.map(({ answers }, q) =>
    answers.map((answer, a) => tokenRewards(answer, rewards[q]?.[a] as number, settings)),
  );
  const flat = questions.flatMap(({ answers }) => answers);
  if (flat.length === 0) return [];
  const offsets = [0];
  for (const { tokens } of flat) offsets.push((offsets.at(-1) as number) + tokens.length);
  const values = Float32Array.from(flat.flatMap((answer) => answer.values));
  const estimated = device.scope(() =>
    gae(
      device.tensor(Float32Array.from(placed.flat(2))),
      device.tensor(values),
      device.tensor(Int32Array.from(offsets)),
      { gamma: settings.gamma, lambda: settings.lam },
    ),
  );
  const [advantages, returns] = await Promise.all([
    estimated.advantages.readFloats(),
    estimated.returns.readFloats(),
  ]);
  estimated.advantages.dispose();
  estimated.returns.dispose();
  if (settings.rollout === 'enumerate') {
    let at = 0;
    questions.forEach(({ answers }, q) => {
      const totals = (placed[q] as number[][]).map((list) => list.reduce((sum, r) => sum + r, 0));
      const own = shares[q] as number[];
      const mass = own.reduce((sum, share) => sum + share, 0);
      const expected = totals.reduce((sum, total, a) => sum + (own[a] as number) * total, 0) / mass;
      answers.forEach(({ tokens }, a) => {
        advantages.fill((totals[a] as number) - expected, at, at + tokens.length);
        at += tokens.length;
      });
    });
  }
  const final = settings.whiten_advantages ? await whitened(device, advantages) : advantages;
  let at = 0;
  return questions.map((question, q) => ({
    ...question,
    answers: question.answers.map((answer, a) => {
      const begin = at;
      at += answer.tokens.length;
      return {
        ...answer,
        reward: rewards[q]?.[a] as number,
        rewards: placed[q]?.[a] as number[],
        advantages: Array.from(final.subarray(begin, at)),
        returns: Array.from(returns.subarray(begin, at)),
        share: shares[q]?.[a] as number,
      };
    }),
  }));
}

function sharesOf(answers: readonly Answer[], { rollout }: CreditSettings): number[] {
  if (rollout === 'sample') return answers.map(() => 1);
  return answers.map(({ oldLogprobs }) => Math.exp(oldLogprobs.reduce((sum, logprob) => sum + logprob, 0)));
}

async function whitened(device: Device, values: Float32Array): Promise<Float32Array> {
  if (values.length < 2) return values;
  const tensor = device.scope(() => whiten(device.tensor(values)));
  const result = await tensor.readFloats();
  tensor.dispose();
  return result;
}
