/** The verdict constraint: the term of the policy's objective that separates the two words, balanced by α. */
import type { VerdictTokenizer } from '../../data/verdict.js';
import { type ConstraintStatistic, verdictConstraint } from '../../objectives/verdict-constraint.js';
import { spanSum } from '../../ops/advantage.js';
import type { StepLabel } from '../../records/record.js';
import type { Tensor } from '../../runtime/tensor.js';
import { type HiddenStates, logitsAt, logprobsAt } from '../../sequences/forward.js';
import type { LossWeights, OwnTerm } from '../../train/policy/objective.js';
import type { Metrics } from '../../train/stage.js';
import { AlphaBalance } from './alpha.js';
import type { ConstraintConfig } from './config.js';
import type { QuestionPiece } from './pieces.js';
import type { CreditedQuestion, Question } from './rollout.js';

export interface ConstraintOptions {
  readonly constraint: ConstraintConfig;
  /** If false, the constraint is measured but not trained on. */
  readonly constrained: boolean;
  readonly template: VerdictTokenizer['template'];
}

interface LabelCounts {
  readonly positives: number;
  readonly negatives: number;
}

export class VerdictConstraint implements OwnTerm<Question, QuestionPiece, ConstraintStatistic, LabelCounts> {
  readonly name = 'constraint_loss';
  private readonly alpha: AlphaBalance;

  constructor(private readonly options: ConstraintOptions) {
    this.alpha = new AlphaBalance(options.constraint.alpha);
  }

  weights(): LossWeights {
    if (!this.options.constrained) return { policy: 1, value: 1, own: 0 };
    const { constraint: own, ...others } = this.alpha.weights();
    return { ...others, own };
  }

  count(pieces: readonly QuestionPiece[]): LabelCounts {
    const labels = pieces.flatMap(({ questions }) => questions.map(constrainedLabel));
    const count = (wanted: StepLabel) => labels.filter((label) => label === wanted).length;
    return { positives: count(1), negatives: count(0) };
  }

  loss(states: HiddenStates, group: readonly QuestionPiece[], { positives, negatives }: LabelCounts) {
    const { form } = this.options.constraint;
    const { positiveIds, negativeIds } = this.options.template;
    const { device } = states.decoder;
    const labels = group.flatMap(({ questions }) =>
      questions.flatMap((question) => constrainedLabel(question) ?? []),
    );
    // Without a label there is no constraint, rather than one of 0.
    if (labels.length === 0) return undefined;
    const word = (which: 'positive' | 'negative', { length }: readonly number[]): Tensor => {
      const rows = group.map(({ questions, words }) =>
        questions.flatMap((question, q) =>
          constrainedLabel(question) === null ? [] : (words[q]?.[which] ?? []).slice(-length),
        ),
      );
      // Words of one token that are compared only with each other need no softmax over the vocabulary.
      const single = positiveIds.length === 1 && negativeIds.length === 1;
      if (single && form === 'class_balanced') return logitsAt(states, rows);
      const { logprobs } = logprobsAt(states, rows);
      if (length === 1) return logprobs;
      const count = logprobs.size / length;
      const spans = Array.from({ length: count }, (_, i) => [i * length, (i + 1) * length]);
      return spanSum(logprobs, device.tensor(Int32Array.from(spans.flat()), [count, 2]));
    };
    const weightOf = (label: 1 | 0) => 1 / (label === 1 ? positives : negatives);
    return verdictConstraint(
      {
        positive: word('positive', positiveIds),
        negative: word('negative', negativeIds),
        labels: device.tensor(Int32Array.from(labels)),
        weights: device.tensor(Float32Array.from(labels, weightOf)),
      },
      { form },
    );
  }

  measure(
    parts: readonly {
      readonly loss: number;
      readonly statistics: Readonly<Record<ConstraintStatistic, number>>;
    }[],
  ): Metrics {
    /** Absent, and not 0, where no step has the label. */
    const byClass = (as: string, name: ConstraintStatistic, count: 'positives' | 'negatives'): Metrics => {
      const labelled = parts.reduce((sum, { statistics }) => sum + statistics[count], 0);
      if (labelled === 0) return {};
      const total = parts.reduce((sum, { statistics }) => sum + statistics[count] * statistics[name], 0);
      return { [as]: total / labelled };
    };
    return {
      constraint_weight: this.weights().own,
      ...(this.options.constrained ? { alpha: this.alpha.value() } : {}),
      constraint_loss: parts.reduce((sum, { loss }) => sum + loss, 0),
      ...byClass('constraint_positive', 'positive_loss', 'positives'),
      ...byClass('constraint_negative', 'negative_loss', 'negatives'),
      ...byClass('acc_pos', 'acc_pos', 'positives'),
      ...byClass('acc_neg', 'acc_neg', 'negatives'),
    };
  }

  applied({ policy, own }: { readonly policy: number; readonly own: number | undefined }): void {
    if (this.options.constrained && own !== undefined) this.alpha.learn({ policy, constraint: own });
  }

  state(): unknown {
    return this.alpha.save();
  }

  restore(state: unknown): void {
    this.alpha.restore(state);
  }
}

/** The label that the constraint may use: not where a reason did not end, so that no word can follow it. */
function constrainedLabel({ label, answers }: CreditedQuestion): StepLabel {
  return answers.every(({ reason }) => reason !== undefined) ? label : null;
}
