/**
 * Pseudo-labels: a trained judge labels the steps that have no label, and supervised training continues on all of them.
 * What reinforcement on unlabelled steps must be compared with, since it learns from the same judge.
 */

import { type Dataset, dataset, inMemory } from '../../data/dataset.js';
import { selectionOf } from '../../data/rare-class.js';
import { StepTrainError } from '../../native/errors.js';
import { grouped } from '../../native/grouped.js';
import type { StepLabel } from '../../records/record.js';
import { readLog } from '../../run/log-file.js';
import { rewardSequence, scoreVerdicts } from '../../scoring/reward-network/scores.js';
import { probability } from '../../scoring/verdict/judged.js';
import { judgeVerdicts } from '../../scoring/verdict/verdicts.js';
import { groupBySize } from '../../sequences/batching.js';
import { type VerdictSequence, verdictSequence } from '../../sequences/sequence.js';
import { stageBatches } from '../../train/batched-stage.js';
import type { MakingStage, TrainingStage } from '../../train/stage.js';
import { supervisedStage } from '../../train/supervised.js';
import { type LabelCounts, learnedVerdicts } from '../../train/verdict-data.js';
import type { StepAmcRun } from './run.js';

const ARTEFACT = 'pseudo_labels';

/** A row of artefacts/pseudo_labels.jsonl: `place` counts the judged steps of solution `item`. */
export interface PseudoLabel {
  readonly item: number;
  readonly place: number;
  readonly label: 1 | 0;
  /** Of `label`; with `by: both` the smaller one of the two judges. */
  readonly probability: number;
}

/** The probability that each step is right, by solution and place; undefined if the signal stopped it. */
type StepProbabilities = (
  sequences: readonly VerdictSequence[],
  signal: AbortSignal,
) => Promise<readonly (readonly number[])[] | undefined>;

/** Labels the unlabelled training steps by the warm-up, the reward network, or both where they agree. */
export function labellingStage(open: StepAmcRun): MakingStage {
  const { config, data } = open;
  const { by, min_probability: least } = config.pseudo_labels;
  const train = data.sequences.train;
  const items = unlabelledItems(train);
  const size = (item: number) => train.get(item).ids.length;
  const batches = groupBySize(items, size, 4 * open.microBatchTokens('pseudo_labels'));
  const judges = [...(by === 'frn' ? [] : [byWarmUp(open)]), ...(by === 'sft' ? [] : [byNetwork(open)])];
  return {
    name: 'labelling',
    artefact: ARTEFACT,
    steps: batches.length,
    batching: { 'labelling.items': items.length },
    settings: { save_steps: 0, save_total_limit: config.pseudo_labels.save_total_limit },
    open: () => ({
      begin: async () => {},
      dispose: () => {},
      async step(index, signal) {
        const chosen = batches[index] as number[];
        const sequences = chosen.map((item) => train.get(item));
        const found: (readonly (readonly number[])[])[] = [];
        for (const judge of judges) {
          const probabilities = await judge(sequences, signal);
          if (!probabilities) return undefined;
          found.push(probabilities);
        }
        const rows = sequences.flatMap(({ verdicts }, i) =>
          verdicts.flatMap(({ label }, place): PseudoLabel[] => {
            if (label !== null) return [];
            const rights = found.map((judged) => judged[i]?.[place] as number);
            const agreed = agreedLabel(rights, least);
            return agreed ? [{ item: chosen[i] as number, place, ...agreed }] : [];
          }),
        );
        const tokens = sequences.reduce((sum, { ids }) => sum + ids.length, 0);
        return { rows: rows.map((row) => ({ ...row })), metrics: { labels: rows.length }, shown: {}, tokens };
      },
    }),
  };
}

/** The label on which all judges agree with at least this probability. */
export function agreedLabel(
  rights: readonly number[],
  least: number,
): Pick<PseudoLabel, 'label' | 'probability'> | undefined {
  const positive = Math.min(...rights);
  const negative = Math.min(...rights.map((right) => 1 - right));
  const label = positive > 0.5 ? 1 : 0;
  const probability = Math.max(positive, negative);
  return probability > 0.5 && probability >= least ? { label, probability } : undefined;
}

/**
 * What it trains at `tokens` of budget, which its last step reaches and passes. The judges may leave steps without a label; the plan
 * takes every solution that can have one.
 */
export function expectedPseudoLabelTokens(
  { config, data: { sequences } }: Pick<StepAmcRun, 'config' | 'data'>,
  { tokens, seed }: { readonly tokens: number; readonly seed: number },
): number {
  const lengths = Array.from(sequences.train, ({ ids, verdicts }) => (verdicts.length > 0 ? ids.length : 0));
  const items = lengths.flatMap((length, i) => (length > 0 ? [i] : []));
  const tokensOf = (i: number) => lengths[i] as number;
  return stageBatches(items, config.pseudo_labels, { seed, tokens, tokensOf }).tokens;
}

/** Supervised training on labels and pseudo-labels together. */
export function pseudoLabelStage(
  open: StepAmcRun,
  options: Pick<Parameters<typeof supervisedStage>[0], 'tokens' | 'seed' | 'validate'>,
): TrainingStage {
  const { config, data, roles, run } = open;
  const made = readLog(run.artefact(ARTEFACT).path) as unknown as readonly PseudoLabel[];
  return supervisedStage({
    ...options,
    name: 'pseudo_labels',
    decoder: roles.decoder,
    role: roles.policy,
    parameters: roles.policyParameters,
    sequences: pseudoLabelled(data.sequences.train, made, { ...data, sft: config.sft }),
    optimization: config.pseudo_labels,
    microBatchTokens: open.microBatchTokens('pseudo_labels'),
    best: selectionOf(config.eval_verdicts.metric_for_best_model, data.labels),
    begin: () => roles.keepReference(),
  });
}

/** The sequences with labels and pseudo-labels, which are learned alike and counted together. */
export function pseudoLabelled(
  train: Dataset<VerdictSequence>,
  made: readonly PseudoLabel[],
  { labels, tokenizer, sft }: PseudoLabelled,
): Dataset<VerdictSequence> {
  const byItem = grouped(made, ({ item }) => item);
  const positive = labels.positive + made.filter(({ label }) => label === 1).length;
  const n = labels.n + made.length;
  const learned = learnedVerdicts(sft, { n, positive, negative: n - positive });
  return dataset(train.length, (item) => {
    const known = byItem.get(item) ?? [];
    // Sequences without pseudo-labels too: the classes may weigh otherwise than in the warm-up.
    return relabelled(
      train.get(item),
      (label, place) => label ?? known.find((row) => row.place === place)?.label ?? null,
      tokenizer,
      learned,
    );
  });
}

interface PseudoLabelled {
  /** Counts of the real labels. */
  readonly labels: LabelCounts;
  readonly tokenizer: Parameters<typeof verdictSequence>[1];
  readonly sft: Parameters<typeof learnedVerdicts>[0];
}

function unlabelledItems(train: Dataset<VerdictSequence>): number[] {
  const items = Array.from(train, ({ verdicts }) => verdicts.some(({ label }) => label === null)).flatMap(
    (is, item) => (is ? [item] : []),
  );
  if (items.length > 0) return items;
  throw new StepTrainError(
    'E_DATA',
    'baseline "pseudo_labels" finds no training step without a label; set data.labelled to a number of solutions',
  );
}

function byWarmUp({ data, roles, ...open }: StepAmcRun): StepProbabilities {
  return async (sequences, signal) => {
    // Only labelled steps are judged; the label itself changes no verdict.
    const asked = sequences.map((sequence) => relabelled(sequence, () => 1, data.tokenizer));
    const judged = await judgeVerdicts(roles.decoder, roles.policy, inMemory(asked), {
      threshold: 0.5,
      tokenizer: data.tokenizer,
      microBatchTokens: open.microBatchTokens('pseudo_labels'),
      signal,
    });
    if (signal.aborted) return undefined;
    const rights = asked.map((): number[] => []);
    for (const { solution, probability } of judged) rights[solution]?.push(probability);
    return rights;
  };
}

function byNetwork({ config, data, roles, ...open }: StepAmcRun): StepProbabilities {
  const mode = config.frn.pair_mode;
  return async (sequences, signal) => {
    const asked = sequences.map((sequence) => rewardSequence(sequence, data.tokenizer, mode));
    const microBatchTokens = open.microBatchTokens('pseudo_labels');
    const scores = await scoreVerdicts(roles, asked, { mode, microBatchTokens, signal });
    return scores?.map((list) => list.map(({ positive, negative }) => probability(positive - negative)));
  };
}

/** The sequence with other labels, learned as `verdictSequence` has it. */
function relabelled(
  { solution, rowId }: VerdictSequence,
  labelOf: (label: StepLabel, place: number) => StepLabel,
  tokenizer: PseudoLabelled['tokenizer'],
  learned?: Parameters<typeof verdictSequence>[3],
): VerdictSequence {
  const verdicts = solution.verdicts.map((verdict, place) => ({
    ...verdict,
    label: labelOf(verdict.label, place),
  }));
  return verdictSequence({ ...solution, verdicts }, tokenizer, rowId, learned);
}
