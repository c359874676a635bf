/** The judge that weighs verdict words with other evidence, described in words. */
import type { LikelihoodWeights } from '../../scoring/settings.js';

export interface LikelihoodReport {
  /** Fitted on validation steps. */
  readonly weights: LikelihoodWeights;
  /**
   * Set where words and evidence do not separate even the steps that the weights were fitted on: the adapter then
   * judges by its words alone.
   */
  readonly kept?: false;
}

interface Judged {
  readonly method: string;
  readonly likelihood?: LikelihoodReport;
}

/** The name in tables of the evidence that is weighed with the words. */
export const evidenceOf = ({ of }: Pick<LikelihoodWeights, 'of'>) => of ?? 'likelihood';

/** The name in tables of the judge behind a report's verdicts: the method, where those are its words alone. */
export function judgeName({ method, likelihood }: Judged): string {
  if (!likelihood || likelihood.kept === false) return method;
  const evidence = evidenceOf(likelihood.weights);
  return likelihood.weights.verdict === 0 ? evidence : `verdicts + ${evidence}`;
}

/** The same in sentences. */
export const judgeInProse = (report: Judged): string =>
  judgeName(report)
    .replace(' + ', ' and ')
    .replace(/^(?=calculations|likelihood|verdicts and)/, 'the judge by ');

/** Sentences on how the judge computes its log-odds. */
export function likelihoodNote({ likelihood }: Pick<Judged, 'likelihood'>): string[] {
  if (!likelihood) return [];
  const evidence = evidenceOf(likelihood.weights);
  if (likelihood.kept === false)
    return [
      `verdicts and ${evidence} together do not tell right from wrong among the steps that their weights were fitted on: the adapter ` +
        'judges by its verdicts alone',
    ];
  const { of, constant, verdict, least, before, unchecked } = likelihood.weights;
  const signed = (value: number) => `${value < 0 ? '−' : '+'} ${Math.abs(value).toFixed(2)}`;
  const ofEvidence =
    of === 'calculations'
      ? ` ${signed(-least)} where a calculation of the step is wrong` +
        (before === 0 ? '' : ` ${signed(-before)} where one before it is`) +
        (unchecked === undefined ? '' : ` ${signed(unchecked)} where the step writes out none`)
      : ` ${signed(least)} × least log-probability of a token up to the end of the step, under the base without its adapter ` +
        `${signed(before)} × the same up to its start`;
  return [
    `the judge that the adapter is kept as: ${verdict === 0 ? `the ${evidence} alone, for want of verdicts that learned something` : `verdicts and ${evidence} together`}. ` +
      `Log-odds of a right step = ${constant.toFixed(2).replace('-', '−')}` +
      (verdict === 0 ? '' : ` ${signed(verdict)} × log-odds of the verdict words`) +
      `${ofEvidence}; fitted on validation ${verdict === 0 ? 'and training ' : ''}steps`,
  ];
}
