/** The data of verdict training: the solutions of each part as token sequences, and statistics about them. */
import type { FrameConfig, PromptConfig, VerdictEvaluationConfig } from '../../config/schema.js';
import { chooseToTrain } from '../../data/balance.js';
import { type Dataset, dataset, inMemory } from '../../data/dataset.js';
import type { LabelRules, LeftOut } from '../../data/label-rules.js';
import { limited } from '../../data/limit.js';
import { heldOutLabels, isKept } from '../../data/neutral.js';
import type { SeenSteps } from '../../data/overlap.js';
import { type ClassWeight, hasRareClass, type Selection, weighsClasses } from '../../data/rare-class.js';
import { PARTS, type Part } from '../../data/split.js';
import { type SummarizedSolution, summarizeTrainingData } from '../../data/summary.js';
import type { TokenStore } from '../../data/token-store.js';
import { trainingFiles } from '../../data/training-files.js';
import {
  placeVerdicts,
  type SolutionVerdicts,
  type VerdictTokenizer,
  verdictLength,
  verdictPlaces,
  verdictTokenizer,
} from '../../data/verdict.js';
import { solutionsWithReasons, withholdLabels } from '../../data/withheld.js';
import { badOption } from '../../files/data-error.js';
import { NumberIndex } from '../../native/number-index.js';
import { Recent } from '../../native/recent.js';
import { type StepLabel, type StepRecord, verdictSamples } from '../../records/record.js';
import { nothingToTrainOn, recordRanks } from '../../run/parts.js';
import { cachedTokenStore } from '../../run/token-cache.js';
import { readNotes, tokenizeInWorker } from '../../run/tokenize.js';
import {
  learnedSizes,
  sizesOf,
  type VerdictSequence,
  verdictSequence,
  verdictSizes,
} from '../../sequences/sequence.js';
import { toLog } from '../../terminal/log.js';
import { reasoningWarning } from '../../tokenizer/chat-reply.js';
import type { TokenizedSequence } from '../../tokenizer/segments.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { OpenRun, PreviewSample, RunData, RunRoles } from '../method.js';

export interface LabelCounts {
  readonly n: number;
  readonly positive: number;
  readonly negative: number;
}

/** A solution with all its tokens, and the labels to use. */
interface TokenizedSolution {
  readonly sequence: TokenizedSequence;
  readonly labels: readonly StepLabel[];
}

export interface VerdictData extends RunData {
  /**
   * Sequence i of a part belongs to record i. Validation and test are limited to `eval.max_samples`. Records are read from
   * disk on each access, sequences only if they are not among the most recent ones.
   */
  readonly sequences: Readonly<Record<Part, Dataset<VerdictSequence>>>;
  readonly records: Readonly<Record<Part, Dataset<StepRecord>>>;
  /** The same solutions with all the tokens that were stored. Read from disk on each access. */
  readonly solutions: Readonly<Record<Part, Dataset<TokenizedSolution>>>;
  /** The `learnedSizes` of the training sequences, made once and without reading their tokens. */
  learnedSizes(): Int32Array;
  /** Whether this step of a held-out solution occurs word for word in the training part. */
  readonly seen: Readonly<Record<'validation' | 'test', SeenSteps>>;
  readonly tokenizer: VerdictTokenizer;
  /** Solutions that the rules of labelling left out, by reason. */
  readonly leftOut: ReadonlyMap<LeftOut, number>;
  /** Labels of the training part. */
  readonly labels: LabelCounts;
}

/** The settings whose `auto` depends on the share of the rarer class. */
interface RareClassSettings {
  readonly sft: { readonly class_weight: ClassWeight };
  readonly eval_verdicts: {
    readonly threshold?: 'auto' | 'validation' | 'greedy' | number;
    readonly metric_for_best_model?: 'auto' | Selection;
    readonly likelihood?: VerdictEvaluationConfig['likelihood'];
  };
}

export interface VerdictDataConfig extends Pick<FrameConfig, 'data' | 'model'> {
  readonly prompt: PromptConfig;
  readonly sft: { readonly class_weight: ClassWeight; readonly label_smoothing?: number };
  readonly eval: { readonly max_samples: number | 'all' };
  readonly eval_verdicts: Pick<VerdictEvaluationConfig, 'neutral'> & RareClassSettings['eval_verdicts'];
}

/** The run as its evaluations see it, for methods that learn verdicts. */
export type VerdictRun = OpenRun<
  FrameConfig & Pick<VerdictDataConfig, 'sft'> & { readonly eval_verdicts: VerdictEvaluationConfig },
  VerdictData,
  RunRoles
>;

export interface VerdictDataOptions {
  /** Also give training steps without a label a place for a verdict, for methods that learn from them. Default false. */
  readonly unlabelled?: boolean;
  /** Rules by which labels are used, as in reward models; with them solutions are tokenised whole. */
  readonly labels?: LabelRules;
}

/** Max tokens of the sequences kept in memory, about 150 MB. Small data is therefore read only once. */
const RECENT_TOKENS = 4e6;

/**
 * Reads, splits and tokenises the configured data, or takes the tokens from the cache of an earlier run. Undefined if
 * the signal stopped it.
 *
 * @throws DataError if the data cannot be used or nothing is left to train on
 */
export async function verdictData(
  config: VerdictDataConfig,
  tokenizer: Tokenizer,
  signal: AbortSignal,
  options: VerdictDataOptions = {},
): Promise<VerdictData | undefined> {
  const { data, model, prompt } = config;
  const { labels } = options;
  const verdicts = verdictTokenizer(prompt, tokenizer);
  const store = await cachedTokenStore({ data, model, template: verdicts.template, labels }, (directory) =>
    tokenizeInWorker({ data, model, prompt, labels, directory }, signal),
  );
  if (store === undefined) return undefined;
  try {
    return fromStore(config, store, verdicts, options);
  } catch (error) {
    store.close();
    throw error;
  }
}

/** Each labelled step as a sample, for `data preview`. */
export function verdictPreview(
  { prompt }: Pick<VerdictDataConfig, 'prompt'>,
  tokenizer: Tokenizer,
): (record: StepRecord) => Iterable<PreviewSample> {
  const verdicts = verdictTokenizer(prompt, tokenizer);
  return function* (record) {
    for (const sample of verdictSamples(record)) {
      const title = `step ${sample.steps.length} is ${sample.label === 1 ? 'right' : 'wrong'}`;
      yield { title, sequence: verdicts.sample(sample) };
    }
  };
}

function fromStore(
  config: Pick<VerdictDataConfig, 'data' | 'sft' | 'eval' | 'eval_verdicts'>,
  store: TokenStore,
  tokenizer: VerdictTokenizer,
  { unlabelled = false }: VerdictDataOptions,
): VerdictData {
  const chosen = chooseSolutions(config, store);
  if (chosen.train.length === 0) throw nothingToTrainOn(config.data, partSizes(store));
  const { labels, isSeen } = readTraining(store, chosen);
  const maxLength = config.data.max_length;
  const placing = ({ index, part }: ChosenSolution) => ({
    maxLength,
    steps: unlabelled && part === 'train' ? ('all' as const) : ('labelled' as const),
    from: store.contextSteps(index),
  });
  const placesOf = (solution: ChosenSolution) => {
    const spans = store.stepEnds(solution.index).map((end, step) => ({ step, end }));
    return verdictPlaces(spans, solution.labels, tokenizer, placing(solution));
  };
  const hasReasons = tokenizer.template.rationaleTokens > 0;
  const learned = learnedVerdicts(config.sft, labels, function* () {
    for (const solution of chosen.train) {
      const reasons = hasReasons ? store.record(solution.index).steps : [];
      for (const { step, label } of placesOf(solution).verdicts)
        if (!hasReasons || (solution.keepsReasons === true && reasons[step]?.rationale !== undefined))
          yield label;
    }
  });
  const sequenceOf = (solution: ChosenSolution, i: number) => {
    const { index, labels } = solution;
    const placed = placeVerdicts(wholeSolution(store, index), labels, tokenizer, placing(solution));
    const whole =
      hasReasons && solution.keepsReasons === true
        ? withReasons(placed, store.record(index), tokenizer)
        : placed;
    return verdictSequence(whole, tokenizer, i, learned);
  };
  const recent = new Recent<number, VerdictSequence>(RECENT_TOKENS, ({ ids }) => ids.length);
  const ofEachPart = <T>(make: (solutions: Dataset<ChosenSolution>, part: Part) => T): Record<Part, T> => ({
    train: make(chosen.train, 'train'),
    validation: make(chosen.validation, 'validation'),
    test: make(chosen.test, 'test'),
  });
  const datasets = <T>(read: (solution: ChosenSolution, i: number) => T) =>
    ofEachPart((solutions) => dataset(solutions.length, (i) => read(solutions.get(i), i)));
  const sequences = ofEachPart((solutions, part) =>
    dataset(solutions.length, (i) =>
      recent.get(PARTS.length * i + PARTS.indexOf(part), () => sequenceOf(solutions.get(i), i)),
    ),
  );
  const makeSizes = () => {
    // The reasons have to be read.
    if (hasReasons) return learnedSizes(sequences.train);
    const sizeOf = verdictSizes(tokenizer);
    return sizesOf(chosen.train, (solution) => sizeOf(placesOf(solution).verdicts));
  };
  let sizes: Int32Array | undefined;
  const seenIn =
    (solutions: Dataset<ChosenSolution>): SeenSteps =>
    ({ solution, step }) =>
      isSeen(store.stepKeys(solutions.get(solution).index)[step]);
  const warnings = [
    ...reasoningWarning(tokenizer.template.tail, 'set prompt.template to a text that opens none'),
    ...(hasReasons ? reasonWarnings(chosen.train, store, config.data) : []),
  ];
  // Copies that a weight asks for are no mistake in the data.
  const repeated = trainingFiles(config.data.train).some(({ weight = 1 }) => weight > 1);
  const notes = readNotes(store.notes);
  const summary = summarizeTrainingData(
    datasets(summarizing(store, { longest: maxLength - verdictLength(tokenizer), repeated, isSeen })),
    { weighed: config.data.balance !== 'none' || weighsClasses(config.sft.class_weight, labels) },
  );
  return {
    sequences,
    learnedSizes: () => (sizes ??= makeSizes()),
    records: datasets((solution) => {
      const { problem, steps, outcome, group } = store.record(solution.index);
      return {
        problem,
        steps:
          solution.part === 'train'
            ? steps
            : steps.map((step, i) => ({ ...step, label: solution.labels[i] ?? null })),
        ...(outcome === undefined ? {} : { outcome }),
        ...(group === undefined ? {} : { group }),
      };
    }),
    solutions: datasets(({ index, labels }) => ({ sequence: wholeSolution(store, index), labels })),
    seen: { validation: seenIn(chosen.validation), test: seenIn(chosen.test) },
    tokenizer,
    labels,
    summary: {
      ...summary,
      notes: rareClassNotes(config, labels),
      warnings: [...leftOutWarning(notes.leftOut), ...warnings, ...summary.warnings],
    },
    ...notes,
    close: () => store.close(),
  };
}

/**
 * The weights by class and the smoothing of learned verdicts.
 *
 * @param labels counts the training steps, which decide whether the classes are weighed
 * @param learned yields the labels that are learned: not beyond the longest sequence, nor without the reason that is asked for
 */
function learnedVerdicts(
  { class_weight, label_smoothing: smoothing = 0 }: VerdictDataConfig['sft'],
  labels: LabelCounts,
  learned: () => Iterable<StepLabel>,
) {
  if (!weighsClasses(class_weight, labels)) return { weigh: () => 1, smoothing };
  const counts = { 0: 0, 1: 0 };
  for (const label of learned()) if (label !== null) counts[label]++;
  const weigh = (label: 1 | 0) => (counts[0] + counts[1]) / (2 * counts[label]);
  return { weigh, smoothing };
}

/** Notes on settings that are `auto` where a class is rare. */
function rareClassNotes({ sft, eval_verdicts: of }: RareClassSettings, labels: LabelCounts): string[] {
  if (!hasRareClass(labels)) return [];
  const { n, positive, negative } = labels;
  const [name, count] = negative < positive ? ['wrong', negative] : ['right', positive];
  const settled = [
    ...(sft.class_weight === 'auto' ? ['both classes weigh the same (class_weight)'] : []),
    ...(of.metric_for_best_model === 'auto' ? ['AUC selects (eval_verdicts.metric_for_best_model)'] : []),
    ...(of.threshold === 'auto' && !of.likelihood
      ? ['validation chooses the threshold (eval_verdicts.threshold)']
      : []),
  ];
  if (settled.length === 0) return [];
  return [
    `${((100 * count) / n).toFixed(1)} % of the training steps are ${name}, so, by auto: ${settled.join(', ')}`,
  ];
}

function leftOutWarning(leftOut: VerdictData['leftOut']): string[] {
  const all = [...leftOut].map(([reason, count]) => `${reason.replaceAll('_', ' ')} ${count}`);
  return all.length === 0 ? [] : [`solutions left out of all parts: ${all.join(', ')}`];
}

function partSizes(store: TokenStore): Record<Part, number> {
  const sizes = { train: 0, validation: 0, test: 0 };
  for (let index = 0; index < store.length; index++) sizes[store.part(index)]++;
  return sizes;
}

/** An index into the store, and the labels to use. */
interface ChosenSolution {
  readonly part: Part;
  readonly index: number;
  readonly labels: readonly StepLabel[];
  /** The warm-up learns the reasons of this training solution. */
  readonly keepsReasons?: boolean;
}

/** A training solution as it is in the store. */
class WholeSolution implements ChosenSolution {
  readonly part = 'train';
  readonly keepsReasons = true;

  constructor(
    private readonly store: TokenStore,
    readonly index: number,
  ) {}

  get labels(): readonly StepLabel[] {
    return this.store.labels(this.index);
  }
}

function chooseSolutions(
  {
    data,
    eval: { max_samples },
    eval_verdicts: { neutral },
  }: Pick<VerdictDataConfig, 'data' | 'eval' | 'eval_verdicts'>,
  store: TokenStore,
): Record<Part, Dataset<ChosenSolution>> {
  const parts = indicesByPart(store);
  const labelsOf = (index: number) =>
    heldOutLabels(store.labels(index), neutral, () => store.record(index).steps);
  const heldOut = (part: 'validation' | 'test') => {
    const all = parts[part];
    const counted = Array.from(
      neutral === 'drop' ? all.filter((index) => isKept(labelsOf(index), neutral)) : all,
    );
    const kept = limited(counted, max_samples, data, (index) => store.rank(index));
    if (kept.length < counted.length)
      toLog(`${part}: ${kept.length} of ${counted.length} solutions are judged (eval.max_samples)`);
    return dataset(kept.length, (i): ChosenSolution => {
      const index = kept[i] as number;
      return { part, index, labels: labelsOf(index) };
    });
  };
  return {
    train: trainingSolutions(data, store, parts.train),
    validation: heldOut('validation'),
    test: heldOut('test'),
  };
}

/** The training solutions that `data` selects, with the labels and reasons that it leaves them. */
function trainingSolutions(
  data: VerdictDataConfig['data'],
  store: TokenStore,
  indices: Uint32Array,
): Dataset<ChosenSolution> {
  const { max_samples, balance, labelled, label_noise, rationales } = data;
  const part = 'train';
  const isWhole =
    max_samples === 'all' &&
    balance === 'none' &&
    labelled === 'all' &&
    label_noise === 0 &&
    rationales === 'all';
  if (isWhole) {
    return dataset(indices.length, (i) => new WholeSolution(store, indices[i] as number));
  }
  const ranksOf = (i: number, seed = data.seed) => recordRanks(store.record(indices[i] as number), seed);
  const balanced = chooseToTrain(
    dataset(indices.length, (i) => store.labels(indices[i] as number)),
    ranksOf,
    data,
    (i) => store.rank(indices[i] as number),
  );
  const withReasons = solutionsWithReasons(balanced, ranksOf, data);
  return inMemory(
    withholdLabels(balanced, ranksOf, data).map(({ index, labels }) => ({
      part,
      index: indices[index] as number,
      labels,
      keepsReasons: withReasons?.has(index) ?? true,
    })),
  );
}

/** Indices into the store, 4 bytes each. */
function indicesByPart(store: TokenStore): Record<Part, Uint32Array> {
  const sizes = [0, 0, 0];
  const partOf = new Uint8Array(store.length);
  for (let index = 0; index < store.length; index++) {
    const part = PARTS.indexOf(store.part(index));
    partOf[index] = part;
    sizes[part] = (sizes[part] as number) + 1;
  }
  const [train, validation, test] = sizes.map((size, part) => {
    const indices = new Uint32Array(size);
    let found = 0;
    for (let index = 0; index < partOf.length; index++) if (partOf[index] === part) indices[found++] = index;
    return indices;
  }) as [Uint32Array, Uint32Array, Uint32Array];
  return { train, validation, test };
}

/** Reads the training part, which may be large, once. */
function readTraining(
  store: TokenStore,
  { train, validation, test }: Record<Part, Dataset<ChosenSolution>>,
): {
  readonly labels: LabelCounts;
  /** Whether a step of a held-out solution, by its key, occurs word for word in the training part. */
  readonly isSeen: (key: number | undefined) => boolean;
} {
  const asked = new NumberIndex();
  for (const part of [validation, test])
    for (const { index } of part) for (const key of store.stepKeys(index)) asked.add(key);
  const isTrained = new Uint8Array(asked.size);
  const counts = { positive: 0, negative: 0 };
  for (const { index, labels } of train) {
    for (const label of labels) {
      if (label === 1) counts.positive++;
      else if (label === 0) counts.negative++;
    }
    if (asked.size === 0) continue;
    for (const key of store.stepKeys(index)) {
      const at = asked.indexOf(key);
      if (at >= 0) isTrained[at] = 1;
    }
  }
  return {
    labels: { n: counts.positive + counts.negative, ...counts },
    isSeen: (key) => key !== undefined && isTrained[asked.indexOf(key)] === 1,
  };
}

/** @throws DataError where no labelled step has a reason to learn */
function reasonWarnings(
  train: Dataset<ChosenSolution>,
  store: TokenStore,
  { rationales }: Pick<VerdictDataConfig['data'], 'rationales'>,
): string[] {
  let [labelled, without] = [0, 0];
  for (const { index, labels, keepsReasons } of train) {
    const { steps } = store.record(index);
    labels.forEach((label, i) => {
      if (label === null) return;
      labelled++;
      if (!keepsReasons || steps[i]?.rationale === undefined) without++;
    });
  }
  if (without === labelled) {
    throw badOption(
      'prompt.response_format is "rationale_then_verdict", and no labelled training step has a reason to learn (`rationale` of ' +
        'a step in data.source "record"; generated word problems have it); use "verdict"',
    );
  }
  if (without === 0 || rationales !== 'all') return [];
  return [`${without} of ${labelled} labelled training steps have no reason: the warm-up leaves them out`];
}

/** Adds the reasons of the record's steps, where a label says which verdict follows. */
function withReasons(
  solution: SolutionVerdicts,
  { steps }: StepRecord,
  tokenizer: VerdictTokenizer,
): SolutionVerdicts {
  const verdicts = solution.verdicts.map((place) => {
    const rationale = place.label === null ? undefined : steps[place.step]?.rationale;
    return rationale === undefined ? place : { ...place, rationale: tokenizer.reason(rationale) };
  });
  return { ...solution, verdicts };
}

/** The tokens of a stored solution with its spans; nothing in it is learned. */
function wholeSolution(store: TokenStore, index: number): SolutionVerdicts['trunk'] {
  const ids = store.ids(index);
  const promptEnd = store.promptEnd(index);
  const ends = store.stepEnds(index);
  const steps = ends.map((end, step) => ({ step, start: ends[step - 1] ?? promptEnd, end, label: null }));
  return {
    ids,
    lossMask: new Uint8Array(ids.length),
    spans: [
      { role: 'prompt', start: 0, end: promptEnd },
      ...steps.map(({ step, start, end }) => ({ role: 'step', step, start, end }) as const),
    ],
    steps,
  };
}

/** @param options `longest`: tokens up to the end of a step whose verdict fits; `repeated`: copies in the training part are meant */
function summarizing(
  store: TokenStore,
  {
    longest,
    repeated,
    isSeen,
  }: {
    readonly longest: number;
    readonly repeated: boolean;
    readonly isSeen: (key: number | undefined) => boolean;
  },
): (solution: ChosenSolution) => SummarizedSolution {
  return ({ part, index, labels }) => {
    const ends = store.stepEnds(index);
    const keys = store.stepKeys(index);
    const isTrained = part === 'train';
    let stepsCut = 0;
    labels.forEach((label, step) => {
      if (label !== null && (ends[step] ?? 0) > longest) stepsCut++;
    });
    return {
      key: store.key(index),
      labels,
      context_steps: store.contextSteps(index),
      tokens: store.size(index),
      stepsCut,
      text: () => store.record(index).problem,
      stepKeys: isTrained && !repeated ? keys : undefined,
      seen: isTrained ? undefined : keys.map(isSeen),
    };
  };
}
