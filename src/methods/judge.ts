/** Judging the steps of a solution with a model that a run trained. */
import type { Model } from '../api/model.js';
import { type VerdictPromptOptions, verdictTokenizer } from '../data/verdict.js';
import { evaluateOn } from '../eval/correction.js';
import { judgedSolutions } from '../eval/judged-solutions.js';
import type { EvalReport } from '../eval/report.js';
import { foreignSteps, foreignWords } from '../eval/step-forms.js';
import type { StepScorer, StepSolution } from '../eval/step-scorer.js';
import { verdictScorer } from '../eval/verdict-scorer.js';
import type { Adapter } from '../models/adapter.js';
import { readCard } from '../models/card.js';
import type { Decoder } from '../models/decoder.js';
import { DisposedError, StepTrainError } from '../native/errors.js';
import type { StepRecord } from '../records/record.js';
import { type JudgeSettings, settingsOfFiles } from '../scoring/settings.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { openReference } from './implicit-reference.js';
import type { LoadedReference } from './offline/answers/reference.js';
import { implicitScorers, type ScoredModel } from './offline/implicit-scorer.js';
import { rewardModelScorer } from './reward/scorer.js';
import { rewardScorer } from './stepamc/reward/scorer.js';

export interface JudgeStepsOptions {
  /** Default: the tokenizer that the model carries. */
  readonly tokenizer?: Tokenizer | undefined;
  /** Text around a judged step, and the verdict words. Default: those that the model was trained with. */
  readonly prompt?: VerdictPromptOptions | undefined;
  /** `greedy`: the word that the model would write. A number: the least probability of a right step. Default: as its run had it. */
  readonly threshold?: 'greedy' | number | undefined;
  /** Most tokens of a sequence. Default: as its run had it, at most what the model reads. */
  readonly maxLength?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface StepJudgement {
  readonly step: string;
  /**
   * Probability that the step is right, from 0 to 1. null: not judged, because its sequence is longer than the model reads or was
   * trained on, because the model judges outcomes alone and this is no last step, or because its scores are no probabilities.
   */
  readonly probability: number | null;
  /** What the model gives: the probability, or the reward of a reward network (of any size; more is better). */
  readonly score: number | null;
  /** null: not judged, or the model would write neither word. */
  readonly verdict: 'right' | 'wrong' | null;
}

/**
 * Judges every step of one solution. The model must be one that a run trained to judge (its `steptrain.json` holds the prompt), or
 * `prompt` must say how to ask.
 *
 * @param steps texts in order; a step is judged by what comes before it, never by later ones
 * @returns one judgement for each step
 * @throws StepTrainError for a model that does not judge steps, DataError for text that the tokenizer cannot express, the signal's
 *   reason if it stopped the call
 */
export async function judgeSteps(
  model: Model,
  problem: string,
  steps: readonly string[],
  options: JudgeStepsOptions = {},
): Promise<StepJudgement[]> {
  const [judged] = await judgeSolutions(model, [{ problem, steps }], options);
  return judged as StepJudgement[];
}

/** As {@link judgeSteps} for many solutions in shared batches; no judgement depends on the others. */
export async function judgeSolutions(
  model: Model,
  solutions: readonly StepSolution[],
  options: JudgeStepsOptions = {},
): Promise<StepJudgement[][]> {
  checkSolutions(solutions);
  const { decoder, adapter } = model;
  const { settings, tokenizer, maxLength, threshold } = await howToJudge(model, options);
  const { signal } = options;
  if (settings.kind === 'verdict') {
    const verdicts = verdictTokenizer(settings.prompt, tokenizer);
    const judged = await judgedSolutions(decoder, { adapter }, verdicts, solutions, {
      maxLength,
      threshold,
      likelihood: settings.likelihood,
      signal,
    });
    signal?.throwIfAborted();
    return solutions.map(({ steps }, i) =>
      steps.map((step, s): StepJudgement => {
        const found = judged[i]?.verdicts[s];
        const probability = found?.probability ?? null;
        return { step, probability, score: probability, verdict: word(found?.verdict) };
      }),
    );
  }
  const scored = await withReference(model, settings, (reference) => {
    const { reward } = scorersOf(settings, { decoder, adapter, reference, tokenizer, maxLength });
    return reward?.score(solutions, signal ? { signal } : {});
  });
  signal?.throwIfAborted();
  const least = threshold === 'greedy' ? 0.5 : threshold;
  return solutions.map(({ steps }, i) =>
    steps.map((step, s): StepJudgement => {
      const score = scored?.[i]?.scores[s] ?? null;
      const probability = score === null ? null : probabilityOf(score, settings);
      return {
        step,
        score,
        probability,
        verdict: probability === null ? null : word(probability >= least ? 1 : 0),
      };
    }),
  );
}

/** Steps on which a judge says little, as it learned from none like them. */
export interface UnlikeTraining {
  /** From 0. */
  readonly places: readonly number[];
  /** Steps of the forms that it learned, commonest first; empty where it reads the numbers of a step in any words. */
  readonly forms: readonly string[];
  /** Words of those steps that were in none that it learned from; empty where the form is another. */
  readonly words: readonly string[];
}

/**
 * Steps that are written like none that the model learned to judge, in form or in words, or that have no number to judge where it
 * goes by numbers. Undefined where there are none, or where it is not known.
 */
export function unlikeTraining({ files }: Model, steps: readonly string[]): UnlikeTraining | undefined {
  const settings = files && settingsOfFiles(files);
  if (settings?.kind !== 'verdict') return undefined;
  const { forms = [], words = [], likelihood } = settings;
  if (likelihood?.of === 'numbers') {
    const places = steps.flatMap((step, i) => (/\d/.test(step) ? [] : [i]));
    return places.length > 0 ? { places, forms: [], words: [] } : undefined;
  }
  const places = forms.length > 0 ? foreignSteps(steps, forms) : [];
  if (places.length > 0) return { places, forms, words: [] };
  const foreign = words.length > 0 ? foreignWords(steps, words) : [];
  const withForeign = foreign.flatMap((of, i) => (of.length > 0 ? [i] : []));
  return withForeign.length > 0
    ? { places: withForeign, forms, words: [...new Set(foreign.flat())] }
    : undefined;
}

/** What the run that trained a model found wrong with it as a judge, in sentences. */
export function judgeWarnings({ files }: Model): readonly string[] {
  const settings = files && settingsOfFiles(files);
  return (settings?.kind === 'verdict' && settings.warnings) || [];
}

export interface EvaluateOptions extends JudgeStepsOptions {
  /** Labelled solutions on which thresholds are chosen; they are not judged by them. Default none. */
  readonly validation?: readonly StepRecord[] | undefined;
  /** What the report says of the data. */
  readonly data?: Readonly<Record<string, unknown>> | undefined;
  /** A verdict that is neither word counts as wrong, instead of being left out. Default true. */
  readonly invalidAsWrong?: boolean | undefined;
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
}

/**
 * Judges the labelled steps of solutions, and says how well: accuracy, balanced accuracy, F1, AUC, calibration, baselines, and 95 %
 * intervals by problems, as `steptrain eval correction` does. `formatEvalTable` prints it.
 *
 * @param records as `loadRecords` reads them
 * @throws StepTrainError for a model that gives no probability of steps, DataError for text that the tokenizer cannot express, the
 *   signal's reason if it stopped the call
 */
export async function evaluate(
  model: Model,
  records: readonly StepRecord[],
  { validation = [], data = {}, invalidAsWrong = true, onProgress, ...options }: EvaluateOptions = {},
): Promise<EvalReport> {
  const { decoder, adapter, files } = model;
  const { settings, tokenizer, maxLength, threshold } = await howToJudge(model, options);
  if (settings.kind === 'reward_network' || (settings.kind === 'reward_model' && settings.type === 'orm'))
    throw new StepTrainError(
      'E_RANGE',
      `${files?.adapter ?? 'the model'} gives no probability of a step: evaluate needs one`,
    );
  return withReference(model, settings, async (reference) => {
    const scorer = () => {
      const scorers = scorersOf(settings, { decoder, adapter, reference, tokenizer, maxLength });
      return (scorers.probability ?? scorers.reward) as StepScorer;
    };
    const { report } = await evaluateOn(
      decoder,
      { adapter },
      {
        judge: {
          tokenizer,
          prompt: settings.kind === 'implicit_prm' ? {} : settings.prompt,
          maxLength,
          threshold,
          ...(settings.kind === 'verdict' ? { likelihood: settings.likelihood } : { scorer }),
        },
        method: cardOf(model)?.method ?? 'model',
        test: records,
        validation,
        positivePrior: undefined,
        data,
        invalidAsWrong,
      },
      { onProgress, signal: options.signal },
    );
    return report;
  });
}

/** With the reference of a model that has one, opened for as long as `work` takes. */
async function withReference<T>(
  model: Model,
  settings: JudgeSettings,
  work: (reference: LoadedReference | undefined) => T,
): Promise<Awaited<T>> {
  const reference = settings.kind === 'implicit_prm' ? await openReference(model, settings) : undefined;
  try {
    return await work(reference);
  } finally {
    reference?.dispose();
  }
}

/** The scorers that settings describe, by name; the one that is meant where none is named first. */
export function scorersOf(
  settings: JudgeSettings,
  {
    decoder,
    adapter,
    tokenizer,
    reference,
    maxLength = Math.min(settings.max_length, decoder.config.maxPositions),
    skipUnreadable = false,
  }: {
    readonly decoder: Decoder;
    readonly adapter: Adapter | undefined;
    /** Of an implicit reward model. */
    readonly reference?: ScoredModel | undefined;
    readonly tokenizer: Tokenizer;
    readonly maxLength?: number;
    readonly skipUnreadable?: boolean;
  },
): Readonly<Record<string, StepScorer>> {
  const role = adapter ? { adapter } : {};
  if (settings.kind === 'implicit_prm') {
    if (!reference) throw new RangeError('an implicit reward model needs its reference');
    const { template, beta } = settings;
    const options = { tokenizer, template, beta, maxLength, skipUnreadable };
    return implicitScorers({ decoder, role }, reference, options);
  }
  const common = { tokenizer, prompt: settings.prompt, maxLength };
  if (settings.kind === 'verdict')
    return {
      verdict: verdictScorer(decoder, { ...common, role, skipUnreadable, likelihood: settings.likelihood }),
    };
  if (settings.kind === 'reward_network')
    return { reward: rewardScorer(decoder, { ...common, mode: settings.pair_mode, role }) };
  const options = { ...common, role, skipUnreadable, settings };
  const reward = rewardModelScorer(decoder, options);
  if (settings.type !== 'joint') return { reward };
  return { reward, outcome: rewardModelScorer(decoder, { ...options, output: 'outcome' }) };
}

async function howToJudge(model: Model, options: JudgeStepsOptions) {
  if (model.isDisposed) throw new DisposedError('the model');
  const settings = settingsOf(model, options);
  const tokenizer = options.tokenizer ?? (await model.tokenizer());
  options.signal?.throwIfAborted();
  const maxLength = Math.min(options.maxLength ?? settings.max_length, model.decoder.config.maxPositions);
  return { settings, tokenizer, maxLength, threshold: options.threshold ?? settings.threshold };
}

function cardOf({ files }: Model) {
  const directory = files?.adapter ?? files?.model;
  return directory === undefined ? undefined : readCard(directory);
}

function settingsOf({ files }: Model, { prompt, threshold }: JudgeStepsOptions): JudgeSettings {
  const directory = files?.adapter ?? files?.model;
  const card = directory === undefined ? undefined : readCard(directory);
  const settings = files && settingsOfFiles(files);
  if (settings) {
    if (!prompt) return settings;
    if (settings.kind === 'implicit_prm')
      throw new StepTrainError(
        'E_RANGE',
        `${directory} is an implicit reward model, which scores the steps of answers and is asked no verdict; give it no prompt`,
      );
    const asked = { ...settings, prompt: { ...settings.prompt, ...definedOf(prompt) } };
    // Weights hold for the prompt that they were fitted with.
    if (asked.kind === 'verdict') delete asked.likelihood;
    return asked;
  }
  if (prompt) {
    const base = {
      template: 'auto',
      pos_word: '+',
      neg_word: '-',
      response_format: 'verdict',
      rationale_tokens: 64,
    } as const;
    return {
      kind: 'verdict',
      prompt: { ...base, ...definedOf(prompt) },
      max_length: Number.POSITIVE_INFINITY,
      threshold: threshold ?? 'greedy',
    };
  }
  throw new StepTrainError(
    'E_RANGE',
    card
      ? `${directory} was trained by method ${card.method}, which does not judge steps`
      : `${directory ?? 'this model'} has no steptrain.json that says how it judges steps; give the prompt that it was trained with`,
  );
}

/** A Bradley–Terry network prefers "right" to "wrong" with the logistic of the difference; of a log-ratio it is the logistic too. */
function probabilityOf(score: number, settings: JudgeSettings): number | null {
  if (settings.kind === 'verdict' || settings.kind === 'reward_model') return score;
  return settings.kind === 'implicit_prm' || settings.pair_mode === 'label'
    ? 1 / (1 + Math.exp(-score))
    : null;
}

const word = (verdict: 0 | 1 | undefined) =>
  verdict === undefined ? null : verdict === 1 ? 'right' : 'wrong';

const definedOf = (prompt: VerdictPromptOptions) =>
  Object.fromEntries(
    Object.entries(prompt).filter(([, value]) => value !== undefined),
  ) as VerdictPromptOptions;

function checkSolutions(solutions: readonly StepSolution[]): void {
  for (const { problem, steps } of solutions)
    if (
      typeof problem !== 'string' ||
      !Array.isArray(steps) ||
      steps.some((step) => typeof step !== 'string')
    )
      throw new StepTrainError(
        'E_RANGE',
        'judgeSteps: expected a problem as text and a list of steps as texts',
      );
}
