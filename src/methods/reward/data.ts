/** The data of a reward model: the solutions of each part under its rules of labelling, as items. */
import { type Dataset, dataset } from '../../data/dataset.js';
import type { LabelRules } from '../../data/label-rules.js';
import { PARTS, type Part } from '../../data/split.js';
import { type RewardItem, rewardItem } from '../../scoring/reward-model/items.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import { type VerdictData, verdictData } from '../../train/verdicts/data.js';
import { heldOutNeutral, type RewardRunConfig, rewardPrompt } from './config.js';

export interface RewardData extends VerdictData {
  /** Item i of a part belongs to record i. Made on each access. */
  readonly items: Readonly<Record<Part, Dataset<RewardItem>>>;
}

function labelRules({
  reward_model,
  eval_scores: { after_error: heldOut },
}: Pick<RewardRunConfig, 'reward_model' | 'eval_scores'>): LabelRules {
  const { type, solutions, after_error, orm_label, soft_labels, train_on_last_step_only } = reward_model;
  return {
    after_error,
    held_out_after_error: heldOut === 'as_trained' ? after_error : heldOut,
    outcome: type === 'prm' ? 'none' : orm_label,
    solutions: solutions === 'auto' ? (type === 'prm' ? 'all' : 'finished') : solutions,
    soft: soft_labels,
    ...(train_on_last_step_only ? { last_step_only: true } : {}),
  };
}

/** Undefined if the signal stopped it. */
export async function rewardData(
  config: RewardRunConfig,
  tokenizer: Tokenizer,
  signal: AbortSignal,
): Promise<RewardData | undefined> {
  const { reward_model: reward } = config;
  const rules = labelRules(config);
  const asked = {
    ...config,
    prompt: rewardPrompt(config),
    // Weighed row by row, outcomes apart from steps.
    sft: { class_weight: reward.type === 'orm' ? ('none' as const) : reward.class_weight },
    eval_verdicts: { ...config.eval_scores, neutral: heldOutNeutral(config) },
  };
  const data = await verdictData(asked, tokenizer, signal, { labels: rules });
  if (!data) return undefined;
  const { max_completion_length: completion } = reward;
  const most = completion === 'all' ? Number.POSITIVE_INFINITY : completion;
  const items = {} as Record<Part, Dataset<RewardItem>>;
  for (const part of PARTS) {
    const solutions = data.solutions[part];
    const records = data.records[part];
    items[part] = dataset(solutions.length, (i) => {
      const { sequence, labels } = solutions.get(i);
      const { steps, outcome } = records.get(i);
      const first = sequence.steps[0]?.start ?? 0;
      return rewardItem(
        {
          ids: sequence.ids,
          ends: sequence.steps.map(({ end }) => end),
          labels,
          neutral: steps.map(({ neutral }) => neutral === true),
          ...(rules.soft ? { scores: steps.map(({ score }) => score) } : {}),
          outcome,
        },
        i,
        data.tokenizer,
        {
          type: reward.type,
          input: reward.input,
          whole: rules.solutions === 'finished',
          maxLength: Math.min(config.data.max_length, first + most),
        },
      );
    });
  }
  return { ...data, items };
}
