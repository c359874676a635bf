/** The data of a reward model: the solutions of each part under its rules of labelling, as items. */
import { type Dataset, dataset } from '../../data/dataset.js';
import { type LabelRules, relabelled } from '../../data/label-rules.js';
import { PARTS, type Part } from '../../data/split.js';
import { upTo, type VerdictTemplate, type VerdictTokenizer, verdictTokenizer } from '../../data/verdict.js';
import { plural } from '../../native/shown.js';
import type { StepLabel, StepRecord } from '../../records/record.js';
import {
  CLASSES,
  classIndex,
  type RewardItem,
  rewardItem,
  type ScoredRow,
} from '../../scoring/reward-model/items.js';
import type { StepSpan, TokenizedSequence } from '../../tokenizer/segments.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { PreviewSample } from '../../train/method.js';
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
  const itemOf = itemsOf(config, rules, data.tokenizer);
  const items = {} as Record<Part, Dataset<RewardItem>>;
  for (const part of PARTS) {
    const solutions = data.solutions[part];
    const records = data.records[part];
    items[part] = dataset(solutions.length, (i) => {
      const { sequence, labels } = solutions.get(i);
      return itemOf(sequence, labels, records.get(i), i);
    });
  }
  return { ...data, items };
}

/** The item of a solution by the configuration, from its tokens, its labels and its record. */
function itemsOf(
  { data, reward_model: { type, input, max_completion_length: completion } }: RewardRunConfig,
  { soft, solutions }: LabelRules,
  tokenizer: VerdictTokenizer,
) {
  const most = completion === 'all' ? Number.POSITIVE_INFINITY : completion;
  return (
    { ids, steps: spans }: { readonly ids: ArrayLike<number>; readonly steps: readonly StepSpan[] },
    labels: readonly StepLabel[],
    { steps, outcome }: Pick<StepRecord, 'steps' | 'outcome'>,
    rowId: number,
  ): RewardItem =>
    rewardItem(
      {
        ids,
        ends: spans.map(({ end }) => end),
        labels,
        neutral: steps.map(({ neutral }) => neutral === true),
        ...(soft ? { scores: steps.map(({ score }) => score) } : {}),
        outcome,
      },
      rowId,
      tokenizer,
      {
        type,
        input,
        whole: solutions === 'finished',
        maxLength: Math.min(data.max_length, (spans[0]?.start ?? 0) + most),
      },
    );
}

/**
 * The samples of a solution, for `data preview`: what the model reads, with each label at the token at which it is read. One
 * sample, unless a label is read after a tail or in a sequence of its own.
 */
export function rewardPreview(
  config: RewardRunConfig,
  tokenizer: Tokenizer,
): (record: StepRecord, part: Part) => Iterable<PreviewSample> {
  const rules = labelRules(config);
  const verdicts = verdictTokenizer(rewardPrompt(config), tokenizer);
  const itemOf = itemsOf(config, rules, verdicts);
  const shown = shownLabel(config, verdicts.template);
  const { type } = config.reward_model;
  const apart = verdicts.tailIds.length > 0 || config.reward_model.input === 'prefixes';
  return function* (record, part) {
    const ruled = relabelled(record, part, rules);
    if (typeof ruled === 'string') return;
    const { trunk } = verdicts.solution(ruled, { steps: 'all' });
    const labels = ruled.steps.map(({ label }) => label);
    const { rows, sequences } = itemOf(trunk, labels, ruled, 0);
    const steps = plural(labels.length, 'step');
    const wanted = type === 'orm' ? 1 : labels.filter((label) => label !== null).length;
    const lost = wanted - rows.filter(({ what }) => type === 'orm' || what === 'step').length;
    const beyond = lost > 0 ? `, ${plural(lost, 'label')} beyond the max length and not read` : '';
    if (rows.length === 0) return;
    if (!apart) {
      const sequence = upTo(trunk, (sequences[0] as { ids: readonly number[] }).ids.length);
      yield { title: `solution of ${steps}${beyond}`, sequence, labels: cellsOf(sequence, rows, shown) };
      return;
    }
    for (const row of rows) {
      const place = row.what === 'step' ? `step ${row.step + 1} of ${labels.length}` : `outcome of ${steps}`;
      const { end } = trunk.steps[row.step] as StepSpan;
      const sequence = withTail(upTo(trunk, end), verdicts.tailIds);
      const at = { ...row, row: sequence.ids.length - 1 };
      yield { title: `${place}${beyond}`, sequence, labels: cellsOf(sequence, [at], shown) };
    }
  };
}

/** Cells of a preview: the label of each token as text, undefined where it has none. */
function cellsOf(
  { ids }: TokenizedSequence,
  rows: readonly ScoredRow[],
  shown: (row: ScoredRow) => string,
): (string | undefined)[] {
  return Array.from(ids, (_, i) => {
    const here = rows.filter(({ row }) => row === i);
    return here.length === 0 ? undefined : here.map(shown).join(',');
  });
}

/** Labels as text: a class, a word or a probability; that of an outcome says so. */
function shownLabel(
  { data, reward_model: { head } }: RewardRunConfig,
  { positive, negative }: VerdictTemplate,
): (row: ScoredRow) => string {
  const ofStep = (row: ScoredRow) => {
    if (data.neutral === 'class') return CLASSES[classIndex(row)];
    const { target } = row;
    if (target !== 0 && target !== 1) return String(target);
    if (head === 'verdict') return target === 1 ? positive : negative;
    return head === 'classes' ? CLASSES[target] : String(target);
  };
  return (row) => (row.what === 'outcome' ? `outcome=${ofStep(row)}` : ofStep(row));
}

/** A sequence with the tokens of the prompt that come before each score. */
function withTail(sequence: TokenizedSequence, tail: readonly number[]): TokenizedSequence {
  const start = sequence.ids.length;
  const end = start + tail.length;
  return {
    ...sequence,
    ids: Int32Array.of(...sequence.ids, ...tail),
    lossMask: new Uint8Array(end),
    spans: [...sequence.spans, { role: 'prompt', start, end }],
  };
}
