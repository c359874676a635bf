/** Evaluates how well a model solves problems: samples, their answers, and metrics. */
import { join } from 'node:path';
import type { EqualityOptions } from '../../answers/equal.js';
import { type ExtractionOptions, endsInReasoning } from '../../answers/extract.js';
import { grade } from '../../answers/grade.js';
import type { Model } from '../../api/model.js';
import type { Problem } from '../../data/benchmarks/problem.js';
import { problemKey, problemOverlap } from '../../data/overlap.js';
import { writeFileAtomically } from '../../files/atomic-file.js';
import { badOption } from '../../files/data-error.js';
import { writeJson } from '../../files/json-file.js';
import { type SolvingPromptOptions, solvingPrompt } from '../../generate/solving-prompt.js';
import { defined, type OptionsOf } from '../../native/defined.js';
import { ending } from '../../native/ending.js';
import { checkOptions } from '../../native/errors.js';
import { plural } from '../../native/shown.js';
import { RunError } from '../../run/error.js';
import { openJournal } from '../../run/journal.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { JsonObject } from '../../weights/json.js';
import { byName } from '../groups.js';
import { BOOTSTRAP, type BootstrapOptions, CONFIDENCE } from '../statistics/bootstrap.js';
import { drawSamples } from './draw.js';
import { type SolvedProblem, writeSolvedProblems } from './dump.js';
import { AGGREGATION, type JudgingOptions, judgedSamples } from './judging.js';
import { contributions, type MetricOptions, metricValues } from './metrics.js';
import { gradingOf, REPORT } from './report-file.js';
import type { GradedSample, SolvingSample } from './sample.js';
import { readSamples, SAMPLES } from './samples-file.js';
import { type SearchOptions, type SearchSettings, searchSolutions } from './search.js';
import { type GradedSearch, searchContributions } from './search-metrics.js';
import { fingerprint, promptSettings, type SolvingSamplingOptions, samplingOf, sha256 } from './settings.js';
import type { SolvingReport } from './solving-report.js';

export interface SolvingOptions
  extends SolvingPromptOptions,
    ExtractionOptions,
    EqualityOptions,
    Pick<MetricOptions, 'ks'>,
    JudgingOptions,
    SolvingSamplingOptions {
  /** Max samples at a time. Default 64 on a CPU, 256 on a GPU. */
  readonly maxRows?: number | undefined;
  /**
   * A directory that every sample is written into at once; called again with the same settings, it goes on where it was
   * stopped. In the end it has `solve.json` and `problems.jsonl` too. More samples or problems may be asked for later.
   */
  readonly output?: string | undefined;
  /** Also search with the scorer, compared with samples for as many tokens. */
  readonly search?: OptionsOf<SearchSettings> | undefined;
  /** Kept in the report. */
  readonly about?: JsonObject | undefined;
  readonly bootstrap?: OptionsOf<BootstrapOptions> | undefined;
  /** Stops the evaluation; samples so far are in `output`. */
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: SolvingProgress) => void) | undefined;
}

const SOLVING_OPTIONS: Record<keyof SolvingOptions, true> = {
  n: true,
  maxNewTokens: true,
  temperature: true,
  topK: true,
  topP: true,
  minP: true,
  seed: true,
  stop: true,
  eosTokenIds: true,
  template: true,
  chat: true,
  system: true,
  examples: true,
  expect: true,
  inReasoning: true,
  digits: true,
  units: true,
  steps: true,
  ks: true,
  scorer: true,
  aggregation: true,
  untilWrong: true,
  curves: true,
  judge: true,
  corrections: true,
  maxRows: true,
  output: true,
  search: true,
  about: true,
  bootstrap: true,
  signal: true,
  onProgress: true,
};

export interface SolvingProgress {
  /** Samples are drawn first, then scored and judged; a search comes last. */
  readonly phase: 'samples' | 'scores' | 'verdicts' | 'search';
  /** Samples that this phase has done, and how many there will be. */
  readonly done: number;
  readonly total: number;
  /** Number of samples that existed at the start. */
  readonly kept: number;
  /** Right ones of them. */
  readonly right: number;
  /** Tokens drawn by this call. */
  readonly tokens: number;
}

export interface SolvingResult {
  readonly report: SolvingReport;
  readonly problems: readonly SolvedProblem[];
}

/**
 * Draws `n` samples of each problem and compares their answers with the expected ones. On the CPU, within one instruction
 * set, the same settings give the same samples, however often it was stopped in between.
 *
 * @param tokenizer of the model
 * @throws DataError for a prompt that cannot be made, StepTrainError for an option out of range, RunError where `output`
 *   holds samples of other settings, the signal's reason where it was aborted
 */
export async function evaluateSolving(
  model: Model,
  tokenizer: Tokenizer,
  problems: readonly Problem[],
  options: SolvingOptions = {},
): Promise<SolvingResult> {
  checkOptions('evaluateSolving', options, SOLVING_OPTIONS);
  const { n = 1, maxRows, output, signal, onProgress } = options;
  if (!(Number.isSafeInteger(n) && n > 0))
    throw badOption(`n: expected a whole number of at least 1, found ${n}`);
  if (problems.length === 0) throw badOption('there is no problem to solve');
  refuseKs(options.ks, n);
  const search = options.search && searchSettings(options.search, problems);
  const prompt = solvingPrompt(tokenizer, {
    ...options,
    template: options.template ?? ownTemplate(problems),
  });
  const prompts = problems.map(({ problem }) => prompt.tokens(problem));
  const hashes = prompts.map((ids) => sha256(JSON.stringify(ids)));
  const sampling = samplingOf(options, { model, tokenizer, prompt });
  const settings: JsonObject = {
    ...promptSettings(prompt, options),
    first_prompt: hashes[0] as string,
    ...sampling,
    model: await fingerprint(model, prompts[0] as readonly number[]),
  };
  await using journal =
    output === undefined ? undefined : ending(await openJournal(output, SAMPLES, settings));
  const reading = { ...options, inReasoning: options.inReasoning ?? prompt.inReasoning };
  const found = new Found(problems, n, reading);
  for (const sample of journal ? await readSamples(journal.path) : []) {
    refuseOtherPrompt(sample, hashes, output as string);
    found.add(sample);
  }
  const kept = found.done;
  let tokens = 0;
  const all = problems.length * n;
  const progress = (done: number, phase: SolvingProgress['phase'], total = all) =>
    onProgress?.({ phase, done, total, kept, right: found.right, tokens });
  const report = () => progress(found.done, 'samples');
  report();
  await drawSamples(model, prompts, {
    ...sampling,
    n,
    maxRows,
    signal,
    tokenizer,
    has: (problem, sample) => found.samples[problem]?.[sample] !== undefined,
    onSample(drawn) {
      const sample = { ...drawn, prompt: hashes[drawn.problem] as string };
      journal?.append({ ...sample });
      found.add(sample);
      report();
    },
    onToken() {
      tokens++;
      report();
    },
  });
  signal?.throwIfAborted();
  const samples = await judgedSamples(problems, found.samples.flat() as GradedSample[], {
    ...options,
    onProgress: progress,
  });
  const solved = problems.map((problem, i) => ({ ...problem, samples: samples.slice(i * n, (i + 1) * n) }));
  const searched =
    search &&
    (await searchedProblems(model, problems, prompts, {
      ...reading,
      ...sampling,
      ...search,
      maxRows,
      tokenizer,
      onSearched: (done) => progress(done, 'search', problems.length),
    }));
  const result = {
    report: reportOf(solved, { n, settings, options: reading, search, searched }),
    problems: solved,
  };
  if (output !== undefined) {
    await writeSolvedProblems(output, solved);
    if (searched) await writeFileAtomically(join(output, SEARCH), jsonLines(searched));
    await writeJson(join(output, REPORT), result.report);
  }
  return result;
}

/** File in `output` with the results of the search. */
const SEARCH = 'search.jsonl';

const SEARCH_DEFAULTS = { beams: 4, expansions: 4, rounds: 40 };

/** Complete; generated problems are solved line by line, others by paragraphs. */
function searchSettings(
  { separator, ...given }: OptionsOf<SearchSettings>,
  problems: readonly Problem[],
): SearchSettings {
  const settings = {
    ...SEARCH_DEFAULTS,
    ...defined(given),
    separator: separator ?? (ownTemplate(problems) === undefined ? '\n\n' : '\n'),
  };
  for (const name of ['beams', 'expansions', 'rounds'] as const)
    if (!(Number.isSafeInteger(settings[name]) && settings[name] > 0))
      throw badOption(`${name}: expected a whole number of at least 1, found ${settings[name]}`);
  if (settings.separator === '') throw badOption('separator: expected a text that ends a step');
  return settings;
}

/** @throws DataError without a reward model, or at a temperature at which all continuations are the same */
async function searchedProblems(
  model: Model,
  problems: readonly Problem[],
  prompts: readonly (readonly number[])[],
  {
    scorer,
    aggregation = AGGREGATION,
    untilWrong = false,
    onSearched,
    ...options
  }: SolvingOptions &
    Omit<SearchOptions, 'scorer' | 'aggregation' | 'untilWrong' | 'onProblem'> & {
      readonly onSearched: (done: number) => void;
    },
): Promise<GradedSearch[]> {
  if (!scorer) throw badOption('a search goes by the scores of a reward model; name one');
  if (options.temperature === 0 && options.expansions > 1)
    throw badOption(
      `at temperature 0 all ${options.expansions} continuations of a beam are the same; search warmer`,
    );
  let done = 0;
  onSearched(done);
  const found = await searchSolutions(model, problems, prompts, {
    ...options,
    scorer,
    aggregation,
    untilWrong,
    onProblem: () => onSearched(++done),
  });
  return found.map((own, i) => {
    const { answer } = problems[i] as Problem;
    const { got, correct } = grade(own.text, answer, { ...options, ended: own.finished });
    return { ...own, answer: got, right: correct };
  });
}

function* jsonLines(rows: readonly object[]) {
  for (const row of rows) yield Buffer.from(`${JSON.stringify(row)}\n`);
}

/** The samples so far, graded. */
class Found {
  readonly samples: (GradedSample | undefined)[][];
  done = 0;
  right = 0;

  constructor(
    private readonly problems: readonly Problem[],
    private readonly n: number,
    private readonly options: EqualityOptions & ExtractionOptions,
  ) {
    this.samples = problems.map(() => new Array<undefined>(n).fill(undefined));
  }

  add(sample: SolvingSample): void {
    const problem = this.problems[sample.problem];
    // Earlier calls may have asked for more problems or samples.
    if (problem === undefined || sample.sample >= this.n) return;
    const ended = sample.finish_reason === 'stop';
    const { got, correct } = grade(sample.text, problem.answer, { ...this.options, ended });
    (this.samples[sample.problem] as (GradedSample | undefined)[])[sample.sample] = {
      ...sample,
      answer: got,
      right: correct,
    };
    this.done++;
    if (correct) this.right++;
  }
}

function refuseOtherPrompt(
  { problem, prompt }: SolvingSample,
  hashes: readonly string[],
  output: string,
): void {
  // Earlier calls may have asked for more problems.
  if (hashes[problem] === undefined || hashes[problem] === prompt) return;
  throw new RunError(
    `${output} holds samples of problem ${problem + 1} after another prompt: its text or its examples have changed since ` +
      'then; go on with the data of then, or choose another directory',
  );
}

function refuseKs(ks: readonly number[] | undefined, n: number): void {
  const wrong = ks?.find((k) => !(Number.isSafeInteger(k) && k >= 1 && k <= n));
  if (wrong !== undefined)
    throw badOption(`ks: expected whole numbers from 1 to ${n}, the number of samples, found ${wrong}`);
}

function reportOf(
  problems: readonly SolvedProblem[],
  {
    n,
    settings,
    options,
    search,
    searched,
  }: {
    readonly n: number;
    readonly settings: JsonObject;
    readonly options: SolvingOptions;
    readonly search: SearchSettings | undefined;
    readonly searched: readonly GradedSearch[] | undefined;
  },
): SolvingReport {
  const { scorer, judge, aggregation = AGGREGATION, about } = options;
  const bootstrap = { ...BOOTSTRAP, ...defined(options.bootstrap ?? {}) };
  const samples = problems.map((problem) => problem.samples);
  const ended = (reason: GradedSample['finish_reason']) =>
    samples.flat().filter(({ finish_reason }) => finish_reason === reason).length;
  const warnings = [
    [ended('too_long') / n, 'problem', 'too long for the model'] as const,
    [ended('error'), 'sample', 'ended when the model gave something that is not a number'] as const,
  ].flatMap(([count, what, why]) => (count > 0 ? [`counted as wrong: ${plural(count, what)}, ${why}`] : []));
  warnings.push(
    ...shownAnswers(problems, options.examples ?? []),
    ...withinReasoning(samples.flat(), options),
    ...unread(samples.flat(), options),
  );
  const metrics = new Map([
    ...contributions(samples, options),
    ...(searched ? searchContributions(searched, samples, options) : []),
  ]);
  if (searched) {
    const short = searched.filter(
      ({ tokens }, i) => tokens > (samples[i] ?? []).reduce((sum, sample) => sum + sample.tokens, 0),
    ).length;
    if (2 * short > problems.length)
      warnings.push(
        `the ${n} samples of ${short} problems have fewer tokens than their search; ask for more samples to compare at equal tokens`,
      );
  }
  return {
    problems: problems.length,
    n,
    metrics: metricValues(metrics, bootstrap),
    ...groupsOf(problems, options, bootstrap),
    bootstrap: { ...bootstrap, confidence: CONFIDENCE },
    ...(scorer ? { scorer: { name: scorer.name, aggregation } } : {}),
    ...(judge ? { judge: judge.name } : {}),
    ...(search ? { search } : {}),
    settings,
    grading: gradingOf(options),
    ...(about ? { about } : {}),
    ...(warnings.length > 0 ? { warnings } : {}),
  };
}

/** The sentence on problems whose solution stands before them as an example. */
function shownAnswers(problems: readonly Problem[], examples: readonly Problem[]): string[] {
  const keys = (of: readonly Problem[]) => of.map(({ problem }) => problemKey(problem));
  const { same, near } = problemOverlap(keys(examples), keys(problems));
  if (same + near === 0) return [];
  const nearly = near === 0 ? '' : same === 0 ? ' nearly' : `, ${near} of them nearly`;
  return [
    `${plural(same + near, 'problem')} of ${problems.length} ${same + near === 1 ? 'is' : 'are'} among the examples in the prompt${nearly}, with the solution; take examples from other problems`,
  ];
}

/** The sentence on samples that ended, by themselves or at a stop text, before their reasoning did. */
function withinReasoning(
  samples: readonly GradedSample[],
  { inReasoning = false, stop = [] }: SolvingOptions,
): string[] {
  const within = samples.filter(
    ({ finish_reason, answer, text }) =>
      finish_reason === 'stop' && answer === null && endsInReasoning(text, inReasoning),
  ).length;
  if (within === 0) return [];
  const why = stop.length > 0 ? `; a stop text, such as ${JSON.stringify(stop[0])}, may stand in it` : '';
  return [
    `${plural(within, 'sample')} ended within the reasoning and ${within === 1 ? 'has' : 'have'} no answer${why}`,
  ];
}

/** Sentences on samples of which a scorer or judge says nothing. */
function unread(samples: readonly GradedSample[], { scorer, judge }: JudgingOptions): string[] {
  const without = scorer
    ? samples.filter(({ answer, score }) => answer !== null && score === null).length
    : 0;
  const right = judge ? samples.filter((sample) => sample.right) : [];
  const unjudged = right.filter(({ steps = [] }) => steps.every((verdict) => verdict === null)).length;
  return [
    ...(without > 0
      ? [
          `${plural(without, 'sample')} with an answer ${without === 1 ? 'has' : 'have'} no score: taken last, and no weight in votes`,
        ]
      : []),
    ...(unjudged > 0
      ? [
          `the judge has no verdict on ${unjudged} of ${plural(right.length, 'right solution')}: they are in no share of wrong steps`,
        ]
      : []),
  ];
}

/** The metrics of each group of problems, where there are groups. */
function groupsOf(
  problems: readonly SolvedProblem[],
  options: SolvingOptions,
  bootstrap: Partial<BootstrapOptions>,
): Pick<SolvingReport, 'groups'> {
  const names = [...new Set(problems.flatMap(({ group }) => group ?? []))].sort((a, b) => byName([a], [b]));
  if (names.length === 0) return {};
  const groups = names.map((name) => {
    const own = problems.flatMap(({ group, samples }) => (group === name ? [samples] : []));
    return [
      name,
      { problems: own.length, metrics: metricValues(contributions(own, options), bootstrap) },
    ] as const;
  });
  return { groups: Object.fromEntries(groups) };
}

/** Generated problems are asked as they are: models learn them without any wish for a form. */
function ownTemplate(problems: readonly Problem[]): string | undefined {
  return problems.every(({ generated }) => generated !== undefined) ? '{problem}' : undefined;
}
