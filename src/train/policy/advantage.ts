/** Advantages and returns from per-token rewards. */
import { StepTrainError } from '../../native/errors.js';
import { gae, whiten } from '../../ops/advantage.js';
import type { Device } from '../../runtime/device.js';
import type { Advantage, AnswerReward, CreditedGroup, Group } from './records.js';

export interface GaeSettings {
  readonly gamma: number;
  readonly lam: number;
  readonly whiten_advantages: boolean;
}

/** Generalised advantage estimation over each answer; all answers have weight 1. */
export function gaeAdvantage<G extends Group>(device: Device, settings: GaeSettings): Advantage<G> {
  return {
    async credit(groups, rewards) {
      const { advantages, returns } = await estimate(device, groups, rewards, settings);
      const final = settings.whiten_advantages ? await whitened(device, advantages) : advantages;
      return assemble(groups, rewards, { advantages: final, returns, shareOf: () => 1 });
    },
  };
}

export interface EstimateSettings extends Pick<GaeSettings, 'gamma' | 'lam'> {
  /** Value of the text after each answer's last token, by answer; absent: 0, as after an answer that has ended. */
  readonly lastValues?: readonly number[] | undefined;
}

/** Advantages and returns by GAE, flat over answers and their tokens. */
export async function estimate(
  device: Device,
  groups: readonly Group[],
  rewards: readonly (readonly AnswerReward[])[],
  { gamma, lam, lastValues }: EstimateSettings,
): Promise<{ readonly advantages: Float32Array; readonly returns: Float32Array }> {
  const answers = groups.flatMap(({ answers }) => answers);
  if (answers.length === 0) return { advantages: new Float32Array(), returns: new Float32Array() };
  const bare = answers.find(({ tokens, values }) => values.length !== tokens.length);
  if (bare) {
    throw new StepTrainError(
      'E_SHAPE',
      `advantages by GAE need a value for each token; an answer of ${bare.tokens.length} tokens has ${bare.values.length}`,
    );
  }
  const offsets = [0];
  for (const { tokens } of answers) offsets.push((offsets.at(-1) as number) + tokens.length);
  const placed = rewards.flatMap((own) => own.flatMap(({ byToken }) => byToken));
  const estimated = device.scope(() =>
    gae(
      device.tensor(Float32Array.from(placed)),
      device.tensor(Float32Array.from(answers.flatMap(({ values }) => values))),
      device.tensor(Int32Array.from(offsets)),
      { gamma, lambda: lam, lastValues: lastValues && device.tensor(Float32Array.from(lastValues)) },
    ),
  );
  const [advantages, returns] = await Promise.all([
    estimated.advantages.readFloats(),
    estimated.returns.readFloats(),
  ]);
  estimated.advantages.dispose();
  estimated.returns.dispose();
  return { advantages, returns };
}

/** Normalised to mean 0 and standard deviation 1 over the values whose `mask` is not 0; the others become 0. */
export async function whitened(
  device: Device,
  values: Float32Array,
  mask?: Float32Array,
): Promise<Float32Array> {
  const counted = mask ? mask.reduce((sum, weight) => sum + (weight === 0 ? 0 : 1), 0) : values.length;
  if (counted < 2) return values;
  const tensor = device.scope(() => whiten(device.tensor(values), { mask: mask && device.tensor(mask) }));
  const result = await tensor.readFloats();
  tensor.dispose();
  return result;
}

/** Splits flat advantages and returns, in the order of `estimate`, by answer. */
export function assemble<G extends Group>(
  groups: readonly G[],
  rewards: readonly (readonly AnswerReward[])[],
  credit: {
    readonly advantages: Float32Array;
    readonly returns: Float32Array;
    shareOf(answer: G['answers'][number]): number;
  },
): CreditedGroup<G>[] {
  let at = 0;
  return groups.map((group, g) => ({
    ...group,
    answers: group.answers.map((answer, a) => {
      const begin = at;
      at += answer.tokens.length;
      const { value, byToken, terms } = (rewards[g] as readonly AnswerReward[])[a] as AnswerReward;
      return {
        ...answer,
        reward: value,
        rewards: byToken,
        advantages: Array.from(credit.advantages.subarray(begin, at)),
        returns: Array.from(credit.returns.subarray(begin, at)),
        share: credit.shareOf(answer),
        ...(terms ? { terms } : {}),
      };
    }),
  }));
}
