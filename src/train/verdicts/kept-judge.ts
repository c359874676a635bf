/** The judge that a run keeps: the adapter's card says how it judges, and what is wrong with it. */
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fixedThreshold } from '../../config/eval-sections.js';
import { type Dataset, dataset } from '../../data/dataset.js';
import type { ClassCounts } from '../../data/rare-class.js';
import {
  type LabelledStep,
  LIKELIHOOD_NEEDS,
  type LikelihoodVerdicts,
  likelihoodVerdicts,
} from '../../eval/likelihood-weights.js';
import type { EvalReport } from '../../eval/reports/eval-report.js';
import { standingIn } from '../../eval/standing.js';
import { readJson } from '../../files/json-file.js';
import { readCard, writeCard } from '../../models/card.js';
import type { StepRecord } from '../../records/record.js';
import type { RunDirectory } from '../../run/directory.js';
import type { JudgedVerdict } from '../../scoring/verdict/judged.js';
import { stepCalculations, stepLikelihoods, withUnread } from '../../scoring/verdict/likelihood.js';
import { foreignPairs, formsOf, pairsOf, wordsOf } from '../../scoring/verdict/step-forms.js';
import type { VerdictSequence } from '../../sequences/sequence.js';
import type { VerdictData, VerdictRun } from './data.js';

/** The verdicts on the test part with the likelihood; undefined if the signal stopped it, or if the steps to fit weights to have one class. */
export async function verdictsByLikelihood(
  { config, data, roles: { decoder }, ...open }: VerdictRun,
  byWords: Readonly<Record<'validation' | 'test', readonly JudgedVerdict[]>>,
  { signal, wordless }: { readonly signal: AbortSignal; readonly wordless?: boolean | undefined },
): Promise<LikelihoodVerdicts | undefined> {
  const microBatchTokens = open.microBatchTokens('sft');
  const of = config.eval_verdicts.likelihood === 'calculations' ? 'calculations' : undefined;
  const evidenceOf = (sequences: Dataset<VerdictSequence>, records: Iterable<StepRecord>) =>
    of ? stepCalculations(records) : stepLikelihoods(decoder, sequences, { microBatchTokens, signal });
  const partOf = async (part: 'validation' | 'test') => {
    const records = data.records[part];
    const likelihoods = await evidenceOf(data.sequences[part], records);
    if (!likelihoods || !of) return likelihoods && { judged: byWords[part], likelihoods };
    const labelOf = (solution: number, step: number) => records.get(solution).steps[step]?.label;
    return { judged: withUnread(byWords[part], likelihoods, labelOf), likelihoods };
  };
  const validation = await partOf('validation');
  const test = validation && (await partOf('test'));
  const lacking = LIKELIHOOD_NEEDS - (validation?.judged.length ?? 0);
  const more = lacking > 0 ? labelledStart(data, lacking) : undefined;
  const ofMore = test && more && (await evidenceOf(more.sequences, more.records));
  if (!test || (more && !ofMore) || signal.aborted) return undefined;
  const train = more && ofMore ? { judged: more.steps, likelihoods: ofMore } : undefined;
  return likelihoodVerdicts(
    { validation, test, train },
    { threshold: fixedThreshold(config.eval_verdicts.threshold), of, wordless },
  );
}

/** The first training solutions with at least `wanted` labelled steps together, or all. */
function labelledStart(
  { sequences: { train: sequences }, records: { train: records } }: VerdictData,
  wanted: number,
) {
  const steps: LabelledStep[] = [];
  let count = 0;
  for (; count < sequences.length && steps.length < wanted; count++)
    for (const { step, label } of sequences.get(count).verdicts)
      if (label !== null) steps.push({ solution: count, step, label, logPositive: 0, logNegative: 0 });
  return {
    sequences: dataset(count, (i) => sequences.get(i)),
    records: dataset(count, (i) => records.get(i)),
    steps,
  };
}

type KnownRecords = Readonly<Record<'train' | 'validation', Dataset<StepRecord>>>;

/** Writes into the card of the weights how they judge, so that every command judges in the same way. */
export async function keepJudge(
  directory: string,
  {
    likelihood,
    threshold,
    report,
    isUntrained,
    labels,
    records,
  }: {
    readonly likelihood: LikelihoodVerdicts | undefined;
    /** Chosen on validation steps. */
    readonly threshold?: number | undefined;
    readonly report: EvalReport;
    /** Whether the verdict words are those of the base. */
    readonly isUntrained: boolean;
    /** Those of the training steps. */
    readonly labels: ClassCounts;
    readonly records: KnownRecords;
  },
): Promise<void> {
  const card = readCard(directory);
  if (!card?.judge) return;
  const weights = likelihood?.isChance ? undefined : likelihood?.weights;
  const only = onlyClass(labels);
  const warnings = [
    ...(only === undefined
      ? []
      : [`every step that it learned from was ${only}, and a verdict cannot be learned from one class`]),
    ...(isUntrained && !weights
      ? ['no evaluation of its training was better than that of the start: it is the base as it was']
      : []),
    ...notAbove(report),
  ];
  const found = {
    ...(threshold === undefined ? {} : { threshold }),
    ...(weights ? { likelihood: weights } : {}),
    // Calculations are computed in any form and words.
    ...(weights && weights.of !== 'calculations' ? knownText(records) : {}),
    ...(warnings.length > 0 ? { warnings } : {}),
  };
  if (Object.keys(found).length > 0)
    await writeCard(directory, { ...card, judge: { ...card.judge, ...found } });
}

/** Max percentage of validation problems with a pair of words that no training problem has, for the pairs to be kept. */
const MAX_UNLIKE = 1;

/** Forms and words of the steps of training and validation, by which the judge recognises unlike text; none of free text. */
export function knownText({ train, validation }: KnownRecords) {
  // Read as a stream: the records may be on disk, and free text is recognised early.
  function* all() {
    yield* train;
    yield* validation;
  }
  const [forms, words, pairs] = [formsOf(all()), wordsOf(all()), pairsOf(all())];
  return {
    ...(forms ? { forms } : {}),
    ...(words ? { words } : {}),
    ...(pairs && isWhole(pairsOf(train) ?? [], validation) ? { word_pairs: pairs } : {}),
  };
}

/** Whether the training problems have nearly all pairs of words of other problems. */
function isWhole(pairs: readonly string[], others: Dataset<StepRecord>): boolean {
  const unlike = foreignPairs(pairs);
  let count = 0;
  for (const { problem } of others) {
    const { words, neighbours } = unlike(problem);
    if (words.length + neighbours.length > 0) count++;
  }
  return others.length > 0 && 100 * count <= MAX_UNLIKE * others.length;
}

/** The label of all labelled steps; undefined where there are both, or none. */
function onlyClass({ positive, negative }: ClassCounts): 'right' | 'wrong' | undefined {
  if (positive > 0 === negative > 0) return undefined;
  return positive > 0 ? 'right' : 'wrong';
}

/** The directory of a run's judge: an adapter, or a whole model. */
export const judgeDirectory = (run: RunDirectory): string =>
  ['adapter', 'model'].map((name) => run.file(name)).find((path) => readCard(path)) ?? run.file('adapter');

/** One sentence where held-out steps do not show that a judge tells right from wrong. */
function notAbove(report: EvalReport): string[] {
  const { auc, n, sentence } = standingIn(report);
  return auc && auc !== 'above' ? [`on ${n} held-out ${report.unit ?? 'steps'} ${sentence}`] : [];
}

/** Writes into the card of a reward model the threshold that validation chose, and the warnings from held-out steps. */
export async function keepThreshold(
  run: RunDirectory,
  threshold: number | undefined,
  report: EvalReport,
): Promise<void> {
  const directory = judgeDirectory(run);
  const card = readCard(directory);
  if (!card?.judge) return;
  const warnings = notAbove(report);
  const judge = {
    ...card.judge,
    ...(threshold === undefined ? {} : { threshold }),
    ...(warnings.length > 0 ? { warnings } : {}),
  };
  await writeCard(directory, { ...card, judge });
}

/** Says in the cards of a run's judges that its training was stopped; training that ends writes them anew. */
export async function keepStop(
  run: RunDirectory,
  { step, stage }: { readonly step: number; readonly stage: number },
  stages: number,
): Promise<void> {
  const directory = run.path;
  const progress = run.file('progress.json');
  // A run that is stopped before its first stage has no judge.
  const found = existsSync(progress) ? ((await readJson(progress)) as { readonly steps: number }) : undefined;
  const where = stages > 1 ? `, in stage ${stage + 1} of ${stages}` : found ? ` of ${found.steps}` : '';
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    const saved = join(directory, entry.name);
    const card = entry.isDirectory() ? readCard(saved) : undefined;
    if (!card?.judge) continue;
    const warnings = [`its training stopped at step ${step}${where}`];
    await writeCard(saved, { ...card, judge: { ...card.judge, warnings } });
  }
}
