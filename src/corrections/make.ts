/** Samples with corrections of a chunk of solutions: candidates, validation, teacher, filters, assembly. */
import { grade } from '../answers/grade.js';
import type { CorrectionsConfig } from '../config/corrections.js';
import { stepsByReference } from '../data/equations/by-reference.js';
import { isRightAnswer } from '../data/problems/oracle.js';
import { PhiloxStream } from '../random/philox.js';
import type { StepRecord } from '../records/record.js';
import { type CorrectedStep, cleanRecord, sampleRecord, secondPass } from './assemble.js';
import { correctionFault } from './filters.js';
import { type SampledModel, tallyLikelihood } from './likelihood.js';
import { sameNumber, sameResult } from './result.js';
import type { Continuation, Prefix, StepSampler } from './sampler.js';
import { normalisedStep, type SourceSolution } from './solution.js';
import type { Tally } from './tally.js';
import { type Correction, stepErrorOf, type Teacher, type WrongStep } from './teacher.js';

export interface MakingTools {
  readonly sampler: StepSampler;
  readonly teacher: Teacher;
  readonly settings: CorrectionsConfig;
  readonly seed: number;
  readonly separator: string;
  /** The sampled model, where it is in this process. */
  readonly scorer?: SampledModel;
}

/** The tools at work. */
export interface Making extends MakingTools {
  readonly tally: Tally;
  readonly signal: AbortSignal | undefined;
}

/** A step that may be wrong. */
export interface Candidate {
  readonly solution: SourceSolution;
  readonly at: number;
  readonly text: string;
  /** Index among the candidates at its position. */
  readonly number: number;
}

/** A wrong step, and how the model went on after it. */
interface Validated extends Candidate {
  readonly continued: readonly string[];
}

/** Domain of the random stream that chooses positions. */
const POSITIONS = 0x706f7369;

/**
 * The samples of each solution, the solution itself first where it is kept. They depend on the solution's number and
 * the settings alone, so that chunks may be cut in any way.
 *
 * @param tally is counted into
 * @returns undefined if the signal stopped it
 */
export async function makeSamples(
  solutions: readonly SourceSolution[],
  tools: MakingTools,
  tally: Tally,
  signal?: AbortSignal,
): Promise<readonly StepRecord[] | undefined> {
  const { settings } = tools;
  const making = { ...tools, tally, signal };
  tally.add('solutions', solutions.length);
  const candidates = await drawCandidates(solutions, making);
  const possible = candidates && (await atSolvablePositions(candidates, making));
  const found = possible && (await wrongOnes(possible, making));
  if (!found) return undefined;
  const wrong = firstPerSolution(found, settings);
  const corrections = await corrected(wrong.map(asWrongStep), making);
  if (!corrections) return undefined;
  const bySolution = new Map<SourceSolution, CorrectedStep[]>();
  for (const [i, { solution, at, text, continued }] of wrong.entries()) {
    const correction = corrections[i];
    if (!correction) continue;
    const own = bySolution.get(solution) ?? [];
    own.push({ at, wrong: text, correction, continued });
    bySolution.set(solution, own);
  }
  tally.add('solutions with samples', bySolution.size);
  return solutions.flatMap((solution) => {
    const own = bySolution.get(solution) ?? [];
    return [...keptRecords(solution, own.length > 0, settings), ...correctedRecords(solution, own, settings)];
  });
}

/**
 * The teacher's correction of each wrong step, undefined for one that is not to be learned; all are counted. Undefined
 * if stopped.
 */
export async function corrected(
  wrong: readonly WrongStep[],
  { teacher, separator, tally, signal, ...tools }: Making,
): Promise<(Correction | undefined)[] | undefined> {
  await tallyLikelihood(wrong, tools, tally);
  const corrections = await teacher.correct(wrong, signal);
  return (
    corrections &&
    wrong.map((place, i) => {
      const correction = corrections[i] ?? 'unanswered';
      const fault =
        typeof correction === 'string' ? correction : correctionFault(place, correction, separator);
      if (fault !== undefined || typeof correction === 'string') {
        tally.add(`rejected: ${fault}`);
        return undefined;
      }
      tally.add('samples');
      const { problem, before, wrong: step, word } = place;
      const error = word && (stepErrorOf(word, before, step) ?? 'none (right)');
      tally.wrongStep(`${problem}\0${before.length}\0${normalisedStep(step)}`, error);
      return correction;
    })
  );
}

/** The solution itself, as far as it is kept. */
export function keptRecords(
  solution: SourceSolution,
  hasSamples: boolean,
  { shape, keep_original }: CorrectionsConfig,
): StepRecord[] {
  if (!keep_original) return [];
  const clean = cleanRecord(solution);
  // A second pass has to learn to leave right solutions as they are, too.
  return shape === 'post_hoc' && hasSamples
    ? [clean, cleanRecord({ ...solution, problem: secondPass(solution.problem, solution.steps) })]
    : [clean];
}

/** The samples of a solution. */
export function correctedRecords(
  solution: SourceSolution,
  corrected: readonly CorrectedStep[],
  { shape, after_improvement }: CorrectionsConfig,
): StepRecord[] {
  const repeat = after_improvement === 'repeat_true_step';
  return corrected.map((step) => sampleRecord(solution, step, { shape, repeat }));
}

async function drawCandidates(
  solutions: readonly SourceSolution[],
  { sampler, settings, seed, tally, signal }: Making,
): Promise<Candidate[] | undefined> {
  const places = solutions.flatMap((solution) =>
    chosenPositions(solution, settings.positions, seed).map((at) => ({ solution, at })),
  );
  tally.add('positions', places.length);
  const prefixes = places.map(({ solution, at }) => prefixOf(solution, at, [], 0));
  const drawn = await sampler.steps(prefixes, settings.sample.n, settings.sample, signal);
  return drawn && places.flatMap(({ solution, at }, i) => distinctSteps(solution, at, drawn[i] ?? [], tally));
}

/** Candidates that are steps, unlike the right one and each other. */
function distinctSteps(
  solution: SourceSolution,
  at: number,
  drawn: readonly Continuation[],
  tally: Tally,
): Candidate[] {
  const right = solution.steps[at] as string;
  const isSame = solution.word ? sameNumber : sameResult;
  const seen = new Set<string>();
  return drawn.flatMap(({ text, ended }, number): Candidate[] => {
    tally.add('candidates');
    const step = text.trim();
    const normalised = normalisedStep(step);
    const fault =
      !ended || normalised === ''
        ? 'unfinished'
        : normalised === normalisedStep(right)
          ? 'the right step'
          : isSame(step, right)
            ? 'the right result'
            : seen.has(normalised)
              ? 'repeated'
              : undefined;
    if (fault !== undefined) {
      tally.add(`candidates: ${fault}`);
      return [];
    }
    seen.add(normalised);
    return [{ solution, at, text: step, number: number + 1 }];
  });
}

/** Candidates at positions from which the model can reach the answer with the right step: the control of `validate`. */
async function atSolvablePositions(
  candidates: readonly Candidate[],
  { sampler, settings: { validate }, tally, signal }: Making,
): Promise<readonly Candidate[] | undefined> {
  if (!validate.require_true_step_pass || validate.by === 'reference') return candidates;
  const keyOf = ({ solution, at }: Candidate) => `${solution.number} ${at}`;
  const places = [...new Map(candidates.map((each) => [keyOf(each), each])).entries()];
  const prefixes = places.map(([, { solution, at }]) =>
    prefixOf(solution, at, [solution.steps[at] as string], 0),
  );
  const drawn = await sampler.continuations(prefixes, validate.k, validate, 'right', signal);
  if (!drawn) return undefined;
  const solved = new Set(
    places.flatMap(([key, { solution, at }], i) =>
      (drawn[i] ?? []).some((rest) => reaches(solution, solution.steps[at] as string, rest)) ? [key] : [],
    ),
  );
  tally.add('positions tested', places.length);
  tally.add('positions that the right step does not solve', places.length - solved.size);
  return candidates.filter((each) => solved.has(keyOf(each)));
}

/** Candidates from which no continuation reaches the answer, or that are wrong by exact arithmetic. */
async function wrongOnes(
  candidates: readonly Candidate[],
  { sampler, settings: { validate }, tally, signal }: Making,
): Promise<Validated[] | undefined> {
  if (validate.by === 'reference') {
    tally.add('candidates tested', candidates.length);
    const wrong = candidates.filter(isWrongByReference);
    tally.add('wrong steps', wrong.length);
    return wrong.map((candidate) => ({ ...candidate, continued: [] }));
  }
  const prefixes = candidates.map(({ solution, at, text, number }) => prefixOf(solution, at, [text], number));
  const drawn = await sampler.continuations(prefixes, validate.k, validate, 'wrong', signal);
  if (!drawn) return undefined;
  tally.add('candidates tested', candidates.length);
  const wrong = candidates.flatMap((candidate, i): Validated[] => {
    const texts = drawn[i] ?? [];
    if (texts.length === 0 || texts.some((rest) => reaches(candidate.solution, candidate.text, rest)))
      return [];
    const ended = texts.find((each) => each.ended) ?? (texts[0] as Continuation);
    return [{ ...candidate, continued: sampler.split(ended.text) }];
  });
  tally.add('wrong steps', wrong.length);
  return wrong;
}

function isWrongByReference({ solution, at, text }: Candidate): boolean {
  const { problem, answer, record, steps } = solution;
  const reference = { problem, answer, solution: record.gold_solution ?? steps.join('\n') };
  return stepsByReference(reference, [...steps.slice(0, at), text])[at] === 0;
}

/**
 * At most `max_per_position` samples at a position and `max_errors_per_solution` in a solution; different positions
 * come first.
 */
function firstPerSolution(
  found: readonly Validated[],
  { max_per_position, max_errors_per_solution }: CorrectionsConfig,
): Validated[] {
  return groups(found, ({ solution }) => solution).flatMap((own) => {
    const byPosition = groups(own, ({ at }) => at);
    const kept: Validated[] = [];
    for (let round = 0; round < max_per_position; round++)
      for (const list of byPosition) {
        const next = list[round];
        if (next && kept.length < max_errors_per_solution) kept.push(next);
      }
    return kept.sort((a, b) => a.at - b.at || a.number - b.number);
  });
}

/** The items by key, in the order in which the keys came. */
function groups<T>(items: readonly T[], keyOf: (item: T) => unknown): T[][] {
  const found = new Map<unknown, T[]>();
  for (const item of items) {
    const known = found.get(keyOf(item));
    if (known) known.push(item);
    else found.set(keyOf(item), [item]);
  }
  return [...found.values()];
}

export function asWrongStep({ solution, at, text }: Pick<Candidate, 'solution' | 'at' | 'text'>): WrongStep {
  const { problem, answer, steps, word } = solution;
  return {
    problem,
    answer,
    before: steps.slice(0, at),
    wrong: text,
    right: steps[at] as string,
    isLast: at === steps.length - 1,
    ...(word ? { word } : {}),
  };
}

/** Positions are numbered from 0; `all`, or so many at random in their order. */
function chosenPositions(
  { steps, number }: SourceSolution,
  positions: number | 'all',
  seed: number,
): number[] {
  const all = steps.map((_, at) => at);
  if (positions === 'all' || positions >= all.length) return all;
  const draw = new PhiloxStream(seed, POSITIONS, number);
  const chosen: number[] = [];
  while (chosen.length < positions) chosen.push(...all.splice(draw.below(all.length), 1));
  return chosen.sort((a, b) => a - b);
}

/** Places of a solution that have numbers of their own: positions and candidates. */
const PLACES = 64;
const CANDIDATES = 17;

function prefixOf(
  { problem, steps, number }: SourceSolution,
  at: number,
  more: readonly string[],
  candidate: number,
): Prefix {
  const id = (number * PLACES + (at % PLACES)) * CANDIDATES + candidate;
  return { problem, steps: [...steps.slice(0, at), ...more], id: id % 2 ** 32 };
}

/** Whether a step and its continuation end in the right answer; one that was cut off does not. */
export function reaches(
  { answer, word }: Pick<SourceSolution, 'answer' | 'word'>,
  step: string,
  { text: rest, ended }: Pick<Continuation, 'text' | 'ended'>,
): boolean {
  if (!ended) return false;
  // The answer is read from the end: an earlier line may have another.
  const text = rest.trim() === '' ? step : rest;
  if (!word) return grade(text, answer).correct;
  const last = text.trimEnd().split('\n').at(-1) as string;
  return isRightAnswer(word, last);
}
