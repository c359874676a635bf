/** Judging the steps of a solution, with a model that learned to or with any scorer. */
import type { Model } from '../api/model.js';
import { ending } from '../native/ending.js';
import { checkOptions, DisposedError, invalid } from '../native/errors.js';
import { shown } from '../native/shown.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { judgeOf, modelScorers, type OpenScorers, type ScoringOptions, settingsOf } from './kinds.js';
import {
  checkSolutions,
  isUnsure,
  probabilityOf,
  type Scorer,
  type Solution,
  type SolutionScores,
  type UnlikeTraining,
  verdictsIn,
} from './scorer.js';
import { settingsOfFiles } from './settings.js';
import { unlikeBy, unlikeSentence } from './unlike-training.js';

export interface JudgeStepsOptions extends Omit<ScoringOptions, 'neutralScore'> {
  /** Default: the tokenizer that the model carries. */
  readonly tokenizer?: Tokenizer | undefined;
  readonly signal?: AbortSignal | undefined;
}

export const JUDGE_OPTIONS: Record<keyof JudgeStepsOptions, true> = {
  prompt: true,
  threshold: true,
  unsure: true,
  votes: true,
  maxLength: true,
  tokenizer: true,
  signal: true,
};

export interface StepJudgement {
  readonly step: string;
  /**
   * Probability that the step is right, from 0 to 1. null: not judged, because its sequence is longer than the model reads or was
   * trained on and it writes out nothing that was computed, because the model judges outcomes alone and this is no last step, or because its scores are no probabilities.
   */
  readonly probability: number | null;
  /** The model's score: the probability, or the reward of a reward network (unbounded; more is better). */
  readonly score: number | null;
  /**
   * unsure: the problem, this step or one before it is unlike all that the judge learned from, or the likelier verdict is less probable than its `unsure`. null: not judged; or the model would write neither word; or the judge goes by calculations alone and the step writes out none, so
   * that its probability is the share of right ones among such steps.
   */
  readonly verdict: 'right' | 'wrong' | 'unsure' | null;
  /**
   * Set for a step that is unlike all that the judge's own run learned from, or comes after one, or whose problem is;
   * {@link unlikeTraining} names the difference. Its probability says nothing of it.
   */
  readonly unlikeTraining?: true;
  /**
   * The reason that the model wrote before this verdict, or the calculations of the step that were computed for it; why it is unsure,
   * where it learned from nothing like it.
   */
  readonly reason?: string;
}

/**
 * Judges every step of one solution. A model must be one that a run trained to judge (its `steptrain.json` holds the prompt), or
 * `prompt` must say how to ask; or it is any scorer, such as one that `openScorer` gives, which has its options already.
 *
 * @param steps texts in order; a step is judged by what comes before it, never by later ones
 * @returns one judgement for each step
 * @throws StepTrainError for a model that does not judge steps, DataError for text that the tokenizer cannot express, the signal's
 *   reason if it stopped the call
 */
export async function judgeSteps(
  model: Model | Scorer,
  problem: string,
  steps: readonly string[],
  options: JudgeStepsOptions = {},
): Promise<StepJudgement[]> {
  const [judged] = await judgedSolutions('judgeSteps', model, [{ problem, steps }], options);
  return judged as StepJudgement[];
}

/** Judges many solutions like {@link judgeSteps}, in shared batches; no judgement depends on the others. */
export async function judgeSolutions(
  model: Model | Scorer,
  solutions: readonly Solution[],
  options: JudgeStepsOptions = {},
): Promise<StepJudgement[][]> {
  return judgedSolutions('judgeSolutions', model, solutions, options);
}

async function judgedSolutions(
  what: string,
  model: Model | Scorer,
  solutions: readonly Solution[],
  given: JudgeStepsOptions,
): Promise<StepJudgement[][]> {
  checkOptions(what, given, JUDGE_OPTIONS);
  const { signal, ...options } = given;
  checkSolutions(what, solutions);
  if (!isModel(what, model)) return judgements(model, solutions, signal);
  if (model.isDisposed) throw new DisposedError('the model');
  const settings = settingsOf(model, options);
  const tokenizer = options.tokenizer ?? (await model.tokenizer());
  signal?.throwIfAborted();
  using opened = ending(await modelScorers(model, { ...options, settings, tokenizer }));
  return await judgements(judgeIn(opened), solutions, signal);
}

/** @throws StepTrainError for a value that is neither a model nor a scorer, such as a name */
export function isModel(what: string, judge: Model | Scorer): judge is Model {
  if (typeof judge === 'object' && judge !== null) {
    if ('decoder' in judge) return true;
    if (typeof judge.score === 'function') return false;
  }
  throw invalid(
    `${what}: expected a model or a scorer, such as loadModel and openScorer give, found ${shown(judge)}`,
  );
}

/** The scorer in a model that judges steps. */
export function judgeIn(opened: Pick<OpenScorers, 'scorers'>): Scorer {
  return opened.scorers[judgeOf(opened)] as Scorer;
}

/** Judgements of each step: its score, the probability, and the verdict. */
export async function judgements(
  scorer: Scorer,
  solutions: readonly Solution[],
  signal?: AbortSignal,
): Promise<StepJudgement[][]> {
  const found = await scorer.score(solutions, { signal });
  signal?.throwIfAborted();
  return solutions.map((solution, i) => judgementsIn(scorer, solution, found?.[i] as SolutionScores));
}

/** Judgements of each step of a solution that was scored. */
export function judgementsIn(
  scorer: Scorer,
  { steps }: Pick<Solution, 'steps'>,
  own: SolutionScores,
): StepJudgement[] {
  const verdicts = verdictsIn(scorer, own);
  const { unlike } = own;
  const places = new Set(unlike?.places);
  const from = unlike?.from ?? steps.length;
  return steps.map((step, s): StepJudgement => {
    const score = own.scores[s] ?? null;
    const probability = score === null ? null : probabilityOf(scorer, score);
    const isRight = verdicts[s] ?? null;
    // The zero of a score that is no probability is arbitrary.
    const verdict =
      probability === null || isRight === null
        ? null
        : isUnsure(scorer, own, s, isRight)
          ? 'unsure'
          : isRight === 1
            ? 'right'
            : 'wrong';
    const reason = unlike && verdict === 'unsure' && s >= from ? unlikeSentence(unlike) : own.reasons?.[s];
    return {
      ...{ step, probability, score, verdict },
      ...(s >= from || places.has(s) ? { unlikeTraining: true } : {}),
      ...(reason ? { reason } : {}),
    };
  });
}

/**
 * Parts of a solution that the model learned nothing like: the words of its problem, the form or the words of a step, or steps without a
 * calculation where it goes by those. Undefined where there is nothing, or where it is not known.
 */
export function unlikeTraining(
  { files }: Pick<Model, 'files'>,
  solution: Pick<Solution, 'problem' | 'steps'>,
): UnlikeTraining | undefined {
  return unlikeBy(files && settingsOfFiles(files))?.(solution);
}

/**
 * Whether the verdicts of a model come from calculations alone, where its words have no weight, or from both. Undefined
 * for a model that computes none.
 */
export function calculationsCount({ files }: Pick<Model, 'files'>): 'alone' | 'beside words' | undefined {
  const settings = files && settingsOfFiles(files);
  if (settings?.kind !== 'verdict' || settings.likelihood?.of !== 'calculations') return undefined;
  return settings.likelihood.verdict === 0 ? 'alone' : 'beside words';
}

/** Sentences on the defects as a judge that the model's own training run found. */
export function judgeWarnings({ files }: Pick<Model, 'files'>): readonly string[] {
  const settings = files && settingsOfFiles(files);
  return (settings && 'warnings' in settings && settings.warnings) || [];
}
