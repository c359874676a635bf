/** The pairwise loss of the reward network (equation 14 of StepAMC, arXiv 2503.18432), and its optimizer. */
import type { DropoutSource } from '../../../models/adapter.js';
import { pairwise } from '../../../objectives/pairs.js';
import { hiddenStates, scalarsAt } from '../../../sequences/forward.js';
import { accumulate, balanceOf, totalLoss } from '../../../train/accumulate.js';
import { AdamW, adamSettings } from '../../../train/adamw.js';
import { HEAD_RATE } from '../../../train/roles/value-head.js';
import type { StepPart } from '../../../train/stage.js';
import type { RewardNetworkConfig } from '../config.js';
import type { StepAmcRoles } from '../roles.js';
import type { RewardPair, RewardUnit } from './pairs.js';

type RewardRoles = Pick<StepAmcRoles, 'decoder' | 'reward' | 'rewardHead' | 'rewardParameters'>;

/** The factor of a parameter's learning rate. */
export const rewardRate = (name: string): number => (name.includes('score') ? HEAD_RATE : 1);

export function rewardOptimizer(
  { rewardParameters }: Pick<RewardRoles, 'rewardParameters'>,
  settings: RewardNetworkConfig,
): AdamW {
  return new AdamW(rewardParameters, { ...adamSettings(settings), rateOf: rewardRate });
}

export type PairMetrics = {
  readonly loss: number;
  /** Share of pairs whose chosen side has the higher score. */
  readonly pair_accuracy: number;
  /** Mean of chosen − rejected, and of each. */
  readonly reward_margin: number;
  readonly reward_chosen: number;
  readonly reward_rejected: number;
};

/** Forward of the pairs, and backward of their mean loss, added to the gradients of the reward network. */
export async function comparePairs(
  { decoder, reward, rewardHead, rewardParameters }: RewardRoles,
  batch: readonly RewardUnit[],
  options: {
    readonly settings: Pick<RewardNetworkConfig, 'margin' | 'center_coef'>;
    readonly microBatchTokens: number;
    /** Absent: metrics only. */
    readonly train?:
      | {
          readonly dropout?: DropoutSource | undefined;
          readonly report?: ((part: StepPart) => void) | undefined;
        }
      | undefined;
  },
): Promise<{ readonly metrics: PairMetrics; readonly tokens: number }> {
  const { device } = decoder;
  const { settings, train } = options;
  const terms = await accumulate(
    batch,
    {
      device,
      microBatchTokens: options.microBatchTokens,
      sizeOf: ({ tokens }) => tokens,
      normaliser: (units) => units.reduce((sum, { pairs }) => sum + pairs.length, 0),
      trains: train && [rewardParameters],
      scope: 'reward network',
      report: train?.report,
    },
    (group, total) => {
      const firsts = group.map((_, i) =>
        group.slice(0, i).reduce((sum, unit) => sum + unit.sequences.length, 0),
      );
      const count = group.reduce((sum, { pairs }) => sum + pairs.length, 0);
      if (count === 0) return [];
      const side = (of: (pair: RewardPair) => readonly [number, number]) =>
        group.flatMap(({ pairs }, i) =>
          pairs.map((pair) => {
            const [sequence, row] = of(pair);
            return [(firsts[i] as number) + sequence, row] as const;
          }),
        );
      const sequences = group.flatMap((unit) => unit.sequences);
      const states = hiddenStates(decoder, { ...reward, dropout: train?.dropout }, sequences);
      const scores = (places: readonly (readonly [number, number])[]) => {
        const rows = places.map(([sequence, row]) => (states.offsets[sequence] as number) + row);
        return scalarsAt({ ...states, offsets: [0] }, rewardHead, [rows]);
      };
      const compared = pairwise(
        {
          chosen: scores(side(({ chosen }) => chosen)),
          rejected: scores(side(({ rejected }) => rejected)),
          weights: device.tensor(new Float32Array(count).fill(1 / total)),
        },
        { margin: settings.margin, center: settings.center_coef },
      );
      return [{ ...compared, share: count / total }];
    },
  );
  const mean = (name: keyof (typeof terms)[number]['statistics']) =>
    terms.reduce((sum, { term, statistics }) => sum + term.share * statistics[name], 0);
  return {
    metrics: {
      loss: totalLoss(terms),
      pair_accuracy: mean('accuracy'),
      reward_margin: mean('margin'),
      reward_chosen: mean('chosen'),
      reward_rejected: mean('rejected'),
      ...balanceOf(terms),
    },
    tokens: batch.reduce((sum, { tokens }) => sum + tokens, 0),
  };
}
