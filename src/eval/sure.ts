/** The metrics of the verdicts of which a judge is sure. */
import { isImprobable } from '../scoring/scorer.js';
import type { JudgedVerdict } from '../scoring/verdict/judged.js';
import { type ConfusionMetrics, confusionMetrics, countConfusion } from './statistics/metrics.js';

export interface SureReport {
  /** The least probability of a verdict. */
  readonly least: number;
  /** Share of the judged steps that have a verdict so probable. */
  readonly share: number;
  /** Over these steps; absent where there are none. */
  readonly metrics?: ConfusionMetrics;
}

/** A verdict that cannot be read is none, and so not sure. */
export function sureReport(judged: readonly JudgedVerdict[], least: number): SureReport | undefined {
  if (judged.length === 0) return undefined;
  const scale = 'probability' as const;
  const sure = judged.filter(
    ({ verdict, probability }) =>
      verdict !== undefined && !isImprobable({ scale, unsure: least }, probability, verdict),
  );
  return {
    least,
    share: sure.length / judged.length,
    ...(sure.length > 0
      ? { metrics: confusionMetrics(countConfusion(sure, { invalidAsWrong: true }).confusion) }
      : {}),
  };
}
