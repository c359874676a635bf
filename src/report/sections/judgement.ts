/** Shows how the trained model judges held-out steps: confusion, probabilities, thresholds, calibration. */
import type { Calibration } from '../../eval/statistics/calibration.js';
import type { ThresholdSweep } from '../../eval/statistics/thresholds.js';
import type { CollectedRun } from '../collect.js';
import { number, percent } from '../format.js';
import { type Html, html } from '../html.js';
import { confusionOf } from '../solutions.js';
import { calibrationPlot } from '../svg/calibration.js';
import { histogram } from '../svg/histogram.js';
import { linePlot } from '../svg/lines.js';
import type { Section } from './section.js';

export function judgement(run: CollectedRun): Section {
  const { report, solutions } = run;
  const steps = solutions.flatMap((solution) => solution.steps);
  const figures = [
    ...(steps.length > 0 ? [confusionMatrix(run), probabilities(run)] : []),
    ...(report?.threshold_sweep ? [thresholds(report.threshold_sweep)] : []),
    ...calibrationBox(
      'Calibration',
      ({ ece, brier }) =>
        `Expected error ${percent(ece)} %, Brier score ${number(brier, 3)}. On the diagonal a probability means what it says.`,
      report?.calibration,
    ),
    ...calibrationBox(
      'Calibration of the reward network',
      ({ ece }) => `As a judge: σ(score of “right” − score of “wrong”); expected error ${percent(ece)} %.`,
      report?.reward_network?.test.calibration,
    ),
    ...calibrationBox(
      'Calibration on whole solutions',
      () => 'Of the outcome scores.',
      report?.outcomes?.calibration,
    ),
  ];
  return {
    id: 'judgement',
    title: 'Verdicts on test steps',
    body: figures.length > 0 ? html`<div class="figures">${figures}</div>` : undefined,
    absent: 'verdicts.jsonl is written by methods that judge steps, when the final evaluation has ended.',
  };
}

export function box(title: string, about: string, figure: Html): Html {
  return html`<figure class="box"><figcaption><strong>${title}</strong> <span class="hint">${about}</span></figcaption>${figure}</figure>`;
}

function calibrationBox(
  title: string,
  about: (calibration: Calibration) => string,
  calibration: Calibration | undefined,
): Html[] {
  return calibration ? [box(title, about(calibration), calibrationPlot(calibration))] : [];
}

function confusionMatrix({ solutions }: CollectedRun): Html {
  const { tp, fn, fp, tn, unreadablePositive, unreadableNegative } = confusionOf(solutions);
  const unreadable = unreadablePositive + unreadableNegative > 0;
  const [positives, negatives] = [tp + fn + unreadablePositive, tn + fp + unreadableNegative];
  const cell = (n: number, of: number, kind: string) =>
    html`<td class="${kind}"><b>${n.toLocaleString('en-US')}</b> <span>${of === 0 ? '–' : `${percent(n / of)} %`}</span></td>`;
  return box(
    'Confusion matrix',
    'Steps, and the share of each label’s row.',
    html`<table class="confusion"><thead><tr><td></td><th scope="col">judged ✓ right</th><th scope="col">judged ✗ wrong</th>${unreadable && html`<th scope="col">unreadable</th>`}</tr></thead>
<tbody><tr><th scope="row">✓ right<br><span class="hint">${positives.toLocaleString('en-US')} steps</span></th>${cell(tp, positives, 'hit')}${cell(fn, positives, 'miss')}${unreadable && cell(unreadablePositive, positives, 'miss')}</tr>
<tr><th scope="row">✗ wrong<br><span class="hint">${negatives.toLocaleString('en-US')} steps</span></th>${cell(fp, negatives, 'miss')}${cell(tn, negatives, 'hit')}${unreadable && cell(unreadableNegative, negatives, 'miss')}</tr></tbody></table>`,
  );
}

function probabilities({ solutions }: CollectedRun): Html {
  const steps = solutions.flatMap((solution) => solution.steps);
  const of = (label: 0 | 1) =>
    steps.filter((step) => step.label === label).map(({ probability }) => probability);
  return box(
    'Probability of “right”',
    'Right and wrong steps, each as shares of their own number: the further apart, the better they are told apart.',
    histogram(
      [
        { name: 'right steps', values: of(1) },
        { name: 'wrong steps', values: of(0) },
      ],
      {
        title: 'probability of “right”, %',
        label: 'How probable the model finds right and wrong steps to be right',
        min: 0,
        max: 1,
        format: (value) => percent(value, 0),
      },
    ),
  );
}

function thresholds({ table, chosen }: ThresholdSweep): Html {
  const line = (name: string, key: 'f1_macro' | 'acc_pos' | 'acc_neg') => ({
    name,
    points: table.map(({ threshold, metrics }) => [threshold, metrics[key]] as const),
  });
  const best = chosen?.f1_macro;
  return box(
    'Thresholds',
    best
      ? `The vertical line is the threshold that is best on validation steps, ${number(best.threshold, 3)}: F1 macro ${percent(best.metrics.f1_macro)} % here.`
      : 'Metrics if a step counts as right from this probability on.',
    linePlot(
      [
        line('F1 macro', 'f1_macro'),
        line('right steps recognised', 'acc_pos'),
        line('wrong steps recognised', 'acc_neg'),
      ],
      {
        x: { min: 0, max: 1, title: 'threshold, %', format: (value) => percent(value, 0) },
        y: { min: 0, max: 1, title: '%', format: (value) => percent(value, 0) },
        label: 'Metrics by threshold on the probability of “right”',
        marks: best ? [{ at: best.threshold, name: 'chosen on validation steps' }] : [],
      },
    ),
  );
}
