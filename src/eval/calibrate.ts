/** Calibrates a judge on labelled steps, and keeps the result in the card beside its weights. */
import { type Model, openSaved } from '../api/model.js';
import { readCard, writeCard } from '../models/card.js';
import { normalizeProblem, type StepRecord } from '../records/record.js';
import { RunError } from '../run/error.js';
import { type ResolveOptions, resolveSaved } from '../run/resolve-saved.js';
import { namedTokenizer } from '../run/tokenizer.js';
import type { Device } from '../runtime/device.js';
import { type Calibration, calibratedProbability } from '../scoring/calibration/calibration.js';
import { judgeIn } from '../scoring/judge.js';
import { modelScorers, settingsOf } from '../scoring/kinds.js';
import { probabilityOf, type Scorer } from '../scoring/scorer.js';
import type { JudgeSettings } from '../scoring/settings.js';
import { formatTable } from '../terminal/table.js';
import { recordScores } from './record-solution.js';
import {
  type CalibrationKind,
  type CalibrationStep,
  type FittedCalibration,
  fitCalibration,
} from './statistics/calibration-fit.js';
import { percent } from './statistics/percent.js';

export interface CalibrateOptions extends ResolveOptions {
  /** Kept in the card too. Default: as it was. */
  readonly unsure?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
}

export interface CalibrateResult extends FittedCalibration {
  /** The directory of the card. */
  readonly directory: string;
  readonly steps: number;
  /** Labelled steps that have no score. */
  readonly unscored: number;
}

/**
 * Fits the calibration of a model that judges steps, and writes it into `steptrain.json` beside its weights.
 *
 * @param name a run, an adapter, a model directory or a hub id
 * @throws RunError for what gives no probability of a step, is calibrated by its likelihood already, or where one class has no label
 */
export async function calibrate(
  device: Device,
  name: string,
  records: readonly StepRecord[],
  { unsure, signal, onProgress, ...options }: CalibrateOptions = {},
): Promise<CalibrateResult> {
  const saved = await resolveSaved(name, options);
  using model = await openSaved(device, saved, {});
  const settings = settingsOf(model, { unsure }, name);
  if ('likelihood' in settings && settings.likelihood)
    throw new RunError(
      `${name} weighs its words with a likelihood, whose weights are fitted to validation steps already; there is nothing to calibrate`,
    );
  const tokenizer = await namedTokenizer(saved.tokenizer);
  const { calibration: _, ...raw } = settings;
  const opened = await modelScorers(model, {
    name,
    tokenizer,
    settings: { ...raw, threshold: 'greedy' } as JudgeSettings,
    skipUnreadable: true,
  });
  const found = await scoredSteps(judgeIn(opened), records, { signal, onProgress }).finally(() =>
    opened.dispose(),
  );
  if (new Set(found.steps.map(({ label }) => label)).size < 2)
    throw new RunError(
      `calibration needs right and wrong steps; of ${found.steps.length} judged steps all have one label, and ${found.unscored} have no score`,
    );
  const fitted = fitCalibration(found.steps);
  const directory = saved.adapter ?? saved.directory;
  await keep(directory, model, settings, fitted);
  return { ...fitted, directory, steps: found.steps.length, unscored: found.unscored };
}

async function scoredSteps(
  scorer: Scorer,
  records: readonly StepRecord[],
  { signal, onProgress }: Pick<CalibrateOptions, 'signal' | 'onProgress'>,
) {
  if (scorer.unit === 'outcome' || scorer.scale === 'reward')
    throw new RunError(`${scorer.name} gives no probability of a step, and a calibration is of those`);
  const numbers = new Map<string, number>();
  const steps: CalibrationStep[] = [];
  let unscored = 0;
  for await (const { record, own } of recordScores(scorer, records, signal, onProgress)) {
    const problem = normalizeProblem(record.problem);
    if (!numbers.has(problem)) numbers.set(problem, numbers.size);
    const number = numbers.get(problem) as number;
    record.steps.forEach(({ label }, step) => {
      if (label === null) return;
      const score = own.scores[step] ?? null;
      if (score === null) unscored++;
      else steps.push({ problem: number, label, probability: probabilityOf(scorer, score) as number });
    });
  }
  signal?.throwIfAborted();
  return { steps, unscored };
}

/**
 * Replaces an earlier calibration. A threshold that somebody or a run chose follows the probabilities, so that verdicts stay as they
 * were. One half stays: of calibrated probabilities it says which verdict is likelier.
 */
async function keep(
  directory: string,
  { decoder }: Model,
  { calibration: earlier, ...own }: JudgeSettings,
  { calibration }: FittedCalibration,
): Promise<void> {
  const { threshold, isOfCalibrated } = thresholdBefore(own, earlier);
  const isMoved = calibration !== undefined && threshold !== 'greedy' && threshold !== 0.5 && !isOfCalibrated;
  const judge = {
    ...own,
    threshold: isMoved ? calibratedProbability(calibration, threshold) : threshold,
    ...(calibration
      ? { calibration: { ...calibration, ...(isMoved ? { own_threshold: threshold } : {}) } }
      : {}),
  };
  const card = readCard(directory) ?? { method: 'published', dtype: decoder.options.dtype };
  await writeCard(directory, { ...card, judge: judge as unknown as NonNullable<typeof card.judge> });
}

/** The threshold before an earlier calibration moved it; one that was written into the card afterwards stays as it is. */
function thresholdBefore({ threshold }: Pick<JudgeSettings, 'threshold'>, earlier: Calibration | undefined) {
  const before = earlier?.own_threshold;
  if (earlier && before !== undefined && threshold === calibratedProbability(earlier, before))
    return { threshold: before, isOfCalibrated: false };
  return { threshold, isOfCalibrated: earlier !== undefined };
}

const KINDS: readonly CalibrationKind[] = ['none', 'temperature', 'isotonic'];

export function formatCalibrate({
  quality,
  chosen,
  calibration,
  steps,
  unscored,
  directory,
}: CalibrateResult): string {
  const rows = KINDS.map((kind) => [
    kind === 'none' ? 'as it is' : kind,
    quality[kind].nll.toFixed(4),
    percent(quality[kind].ece),
    quality[kind].brier.toFixed(4),
  ]);
  const what =
    chosen === 'none'
      ? 'its probabilities stay as they are'
      : calibration?.kind === 'temperature'
        ? `temperature ${calibration.temperature.toFixed(3)}`
        : 'isotonic';
  return [
    formatTable([[`${steps} steps`, 'NLL', 'ECE %', 'Brier'], ...rows]),
    `each step by a fit to other problems (5 folds)${unscored > 0 ? `; ${unscored} labelled steps have no score` : ''}`,
    `chosen by NLL: ${what}; written to steptrain.json in ${directory}`,
  ].join('\n');
}
