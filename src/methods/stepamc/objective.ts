/** The objective of space-constrained policy optimisation: PPO and the verdict constraint in one backward. */
import { Tape } from '../../autograd/tape.js';
import type { Dataset } from '../../data/dataset.js';
import type { VerdictTokenizer } from '../../data/verdict.js';
import { type PpoStatistic, ppo } from '../../objectives/ppo.js';
import { type Objective, readStatistics } from '../../objectives/statistics.js';
import { type ConstraintStatistic, verdictConstraint } from '../../objectives/verdict-constraint.js';
import { spanSum } from '../../ops/advantage.js';
import type { StepLabel } from '../../records/record.js';
import type { Device } from '../../runtime/device.js';
import type { Tensor } from '../../runtime/tensor.js';
import { groupBySize } from '../../sequences/batching.js';
import { type HiddenStates, hiddenStates, logitsAt, logprobsAt, scalarsAt } from '../../sequences/forward.js';
import type { AnswerRow, BranchedAnswer, VerdictSequence } from '../../sequences/sequence.js';
import type { PolicyGradients, PolicyObjective } from '../../train/policy/records.js';
import type { Metrics } from '../../train/stage.js';
import { AlphaBalance, type LossWeights } from './alpha.js';
import type { ConstraintConfig, PpoConfig } from './config.js';
import { answeredSequence } from './questions.js';
import type { StepAmcRoles } from './roles.js';
import type { CreditedQuestion, Question } from './rollout.js';

export interface ScpoOptions {
  readonly roles: Pick<StepAmcRoles, 'decoder' | 'policy' | 'valueHead' | 'policyParameters'>;
  readonly ppo: PpoConfig;
  readonly constraint: ConstraintConfig;
  /** If false, the constraint is measured but not trained on. */
  readonly constrained: boolean;
  readonly tokenizer: Pick<VerdictTokenizer, 'template' | 'tailIds'>;
  readonly sequences: Dataset<VerdictSequence>;
  readonly microBatchTokens: number;
  /** Steps of the stage. */
  readonly steps: number;
}

const UNCONSTRAINED: LossWeights = { policy: 1, value: 1, constraint: 0 };

/** PPO and the verdict constraint, balanced by α. Means are over the whole mini-batch, however it is divided into micro-batches. */
export class ScpoObjective implements PolicyObjective<Question> {
  private readonly alpha: AlphaBalance;

  constructor(private readonly options: ScpoOptions) {
    this.alpha = new AlphaBalance(options.constraint, options.steps);
  }

  async gradients(questions: readonly CreditedQuestion[], step: number): Promise<PolicyGradients<Question>> {
    const { roles, microBatchTokens, constrained } = this.options;
    const { device } = roles.decoder;
    const weights = constrained ? this.alpha.weights(step) : UNCONSTRAINED;
    roles.policyParameters.zeroGrads();
    const items = sequencesOf(questions, this.options);
    const normaliser = normalisers(questions);
    const parts: MicroBatchMetrics[] = [];
    for (const group of groupBySize(items, ({ sequence }) => sequence.ids.length, microBatchTokens)) {
      const tape = new Tape(device);
      const objectives = device.scope(
        () => tape.run(() => microBatch(device, group, normaliser, weights, this.options)),
        'policy',
      );
      tape.backward([
        // The value loss carries its own factor inside the objective, see `valueFactor`.
        [objectives.policy.loss, weights.policy],
        ...(objectives.constraint ? [[objectives.constraint.loss, weights.constraint] as const] : []),
      ]);
      tape.dispose();
      parts.push(await readMetrics(objectives));
      await device.synchronize();
    }
    const { losses, metrics } = summarize(parts, this.options.ppo, weights);
    const { policy, value, constraint } = losses;
    return {
      loss: weights.policy * policy + weights.value * value + weights.constraint * constraint,
      terms: {
        policy_loss: policy,
        value_loss: value,
        // Without a label there is no constraint, which is not one of 0.
        ...(normaliser.positives + normaliser.negatives > 0 ? { constraint_loss: constraint } : {}),
      },
      metrics: {
        constraint_weight: weights.constraint,
        ...(constrained ? { alpha: this.alpha.value(step) } : {}),
        ...metrics,
      },
      shown: { kl: metrics.kl_k3 },
      tokens: items.reduce((total, { sequence }) => total + sequence.ids.length, 0),
    };
  }

  applied({ terms }: PolicyGradients): void {
    if (!this.options.constrained) return;
    const { policy_loss: policy, value_loss: value, constraint_loss: constraint } = terms as LossTerms;
    if (constraint !== undefined) this.alpha.learn({ policy, value, constraint });
  }

  state(): unknown {
    return this.alpha.save();
  }

  restore(state: unknown): void {
    this.alpha.restore(state);
  }
}

type LossTerms = Readonly<Record<'policy_loss' | 'value_loss', number>> & {
  readonly constraint_loss?: number;
};

interface AnsweredItem {
  readonly questions: readonly CreditedQuestion[];
  readonly sequence: ReturnType<typeof answeredSequence>;
}

/** Each solution with the answers of its questions, and both words for the constraint. */
function sequencesOf(
  questions: readonly CreditedQuestion[],
  { sequences, tokenizer }: ScpoOptions,
): AnsweredItem[] {
  const { template, tailIds } = tokenizer;
  const byItem = new Map<number, CreditedQuestion[]>();
  for (const question of questions)
    byItem.set(question.item, [...(byItem.get(question.item) ?? []), question]);
  return [...byItem].map(([item, own]) => ({
    questions: own,
    sequence: answeredSequence(
      sequences.get(item),
      own.map(({ place, answers }) => ({
        place,
        answers: [
          ...answers.map(({ tokens }) => tokens),
          ...[template.positiveIds, template.negativeIds].map((word) => [...reasonOf(answers), ...word]),
        ],
      })),
      tailIds,
    ),
  }));
}

/** The reason after which the constraint looks at both words: that of a sampled answer. */
function reasonOf([answer]: CreditedQuestion['answers']): readonly number[] {
  return answer?.tokens.slice(0, answer.reason ?? 0) ?? [];
}

/** The label that the constraint may use: not where a reason did not end, so that no word can follow it. */
function constrainedLabel({ label, answers }: CreditedQuestion): StepLabel {
  return answers.every(({ reason }) => reason !== undefined) ? label : null;
}

interface Normalisers {
  /** Sum of the answers' weights over all their tokens. */
  readonly mass: number;
  readonly positives: number;
  readonly negatives: number;
}

function normalisers(questions: readonly CreditedQuestion[]): Normalisers {
  const count = (wanted: 1 | 0) =>
    questions.filter((question) => constrainedLabel(question) === wanted).length;
  const mass = questions
    .flatMap(({ answers }) => answers)
    .reduce((sum, { share, tokens }) => sum + share * tokens.length, 0);
  return { mass, positives: count(1), negatives: count(0) };
}

interface Objectives {
  readonly policy: Objective<PpoStatistic>;
  /** Absent where no step of the micro-batch has a label. */
  readonly constraint: Objective<ConstraintStatistic> | undefined;
}

function microBatch(
  device: Device,
  group: readonly AnsweredItem[],
  normaliser: Normalisers,
  weights: LossWeights,
  { roles, ppo: settings, constraint, tokenizer }: ScpoOptions,
): Objectives {
  const states = hiddenStates(
    roles.decoder,
    roles.policy,
    group.map(({ sequence }) => sequence),
  );
  const answers = group.flatMap(({ questions }) => questions.flatMap((question) => question.answers));
  const rows = group.map(({ questions, sequence }) =>
    questions.flatMap((question, q) => question.answers.flatMap((_, a) => answerRows(sequence, q, a))),
  );
  const { temperature, entropy_coef: entropyCoef } = settings;
  const { logprobs, entropy } = logprobsAt(states, rows, {
    temperature,
    entropyGradient: entropyCoef !== 0,
  });
  const values = scalarsAt(
    states,
    roles.valueHead,
    rows.map((list) => list.map(({ row }) => row)),
  );
  const upload = (of: (answer: CreditedQuestion['answers'][number]) => readonly number[]) =>
    device.tensor(Float32Array.from(answers.flatMap(of)));
  const old = settings.old_logprobs === 'sampler' && settings.rollout === 'sample';
  const policy = ppo(
    {
      logprobs,
      oldLogprobs: upload(({ samplerLogprobs, oldLogprobs }) => (old ? samplerLogprobs : oldLogprobs)),
      refLogprobs: upload(({ refLogprobs }) => refLogprobs),
      advantages: upload(({ advantages }) => advantages),
      weights: upload(({ share, tokens }) => tokens.map(() => share / normaliser.mass)),
      entropy,
      values,
      oldValues: upload((answer) => answer.values),
      returns: upload(({ returns }) => returns),
    },
    {
      clipLow: settings.cliprange,
      clipHigh: settings.cliprange,
      klCoef: settings.kl_in === 'loss' ? settings.kl_coef : 0,
      klEstimator: settings.kl_estimator,
      entropyCoef,
      valueCoef: settings.vf_coef * valueFactor(weights),
      valueClip: settings.cliprange_value,
    },
  );
  return { policy, constraint: constraintOf(device, states, group, normaliser, constraint, tokenizer) };
}

/** Rows of answer `a` to question `q`; negative `a` counts from the last. */
function answerRows({ answers }: AnsweredItem['sequence'], q: number, a: number): readonly AnswerRow[] {
  return (answers[q] as readonly BranchedAnswer[]).at(a)?.rows ?? [];
}

/** Factor of the value loss inside an objective that is itself weighted by `policy`. */
function valueFactor({ policy, value }: LossWeights): number {
  return policy === 0 ? 0 : value / policy;
}

function constraintOf(
  device: Device,
  states: HiddenStates,
  group: readonly AnsweredItem[],
  { positives, negatives }: Normalisers,
  { form, margin }: ConstraintConfig,
  { template }: ScpoOptions['tokenizer'],
): Objective<ConstraintStatistic> | undefined {
  const labels = group.flatMap(({ questions }) =>
    questions.flatMap((question) => constrainedLabel(question) ?? []),
  );
  if (labels.length === 0) return undefined;
  const word = (which: -2 | -1): Tensor => {
    const length = (which === -2 ? template.positiveIds : template.negativeIds).length;
    const rows = group.map(({ questions, sequence }) =>
      questions.flatMap((question, q) =>
        constrainedLabel(question) === null ? [] : answerRows(sequence, q, which).slice(-length),
      ),
    );
    // Words of one token that are compared only with each other need no softmax over the vocabulary.
    const single = template.positiveIds.length === 1 && template.negativeIds.length === 1;
    const betweenWords = form === 'class_balanced' || form === 'ce_two' || form === 'margin';
    if (single && betweenWords) return logitsAt(states, rows);
    const { logprobs } = logprobsAt(states, rows);
    if (length === 1) return logprobs;
    const count = logprobs.size / length;
    const spans = Array.from({ length: count }, (_, i) => [i * length, (i + 1) * length]);
    return spanSum(logprobs, device.tensor(Int32Array.from(spans.flat()), [count, 2]));
  };
  const total = positives + negatives;
  const weightOf = (label: 1 | 0) =>
    form === 'class_balanced' || form === 'class_balanced_full'
      ? 1 / (label === 1 ? positives : negatives)
      : 1 / total;
  return verdictConstraint(
    {
      positive: word(-2),
      negative: word(-1),
      labels: device.tensor(Int32Array.from(labels)),
      weights: device.tensor(Float32Array.from(labels, weightOf)),
    },
    { form, margin },
  );
}

interface MicroBatchMetrics {
  readonly policyLoss: number;
  readonly constraintLoss: number;
  readonly ppo: Readonly<Record<PpoStatistic, number>>;
  readonly constraint: Readonly<Record<ConstraintStatistic, number>> | undefined;
}

async function readMetrics({ policy, constraint }: Objectives): Promise<MicroBatchMetrics> {
  const [[policyLoss], ppo, [constraintLoss], ofConstraint] = await Promise.all([
    policy.loss.readFloats(),
    readStatistics(policy.statistics),
    constraint?.loss.readFloats() ?? [0],
    constraint && readStatistics(constraint.statistics),
  ]);
  for (const objective of [policy, constraint]) {
    objective?.loss.dispose();
    objective?.statistics.values.dispose();
  }
  return {
    policyLoss: policyLoss as number,
    constraintLoss: constraintLoss as number,
    ppo,
    constraint: ofConstraint,
  };
}

function summarize(parts: readonly MicroBatchMetrics[], settings: PpoConfig, weights: LossWeights) {
  const sum = (of: (part: MicroBatchMetrics) => number) => parts.reduce((total, part) => total + of(part), 0);
  const mean = (name: PpoStatistic) => sum((part) => part.ppo.weight * part.ppo[name]);
  /** Absent, and not 0, where no step has the label. */
  const byClass = (as: string, name: ConstraintStatistic, count: 'positives' | 'negatives'): Metrics => {
    const labelled = sum(({ constraint }) => constraint?.[count] ?? 0);
    if (labelled === 0) return {};
    const total = sum(({ constraint }) => (constraint ? constraint[count] * constraint[name] : 0));
    return { [as]: total / labelled };
  };
  const value = settings.vf_coef * mean('value_loss');
  const policy = sum(({ policyLoss }) => policyLoss) - valueFactor(weights) * value;
  const constraint = sum(({ constraintLoss }) => constraintLoss);
  return {
    losses: { policy, value, constraint },
    metrics: {
      policy_loss: mean('policy_loss'),
      value_loss: mean('value_loss'),
      constraint_loss: constraint,
      ...byClass('constraint_positive', 'positive_loss', 'positives'),
      ...byClass('constraint_negative', 'negative_loss', 'negatives'),
      ...byClass('acc_pos', 'acc_pos', 'positives'),
      ...byClass('acc_neg', 'acc_neg', 'negatives'),
      ratio_mean: mean('ratio_mean'),
      ratio_max: Math.max(...parts.map((part) => part.ppo.ratio_max)),
      clip_fraction: mean('clip_fraction'),
      value_clip_fraction: mean('value_clip_fraction'),
      kl_k1: mean('kl_k1'),
      kl_k3: mean('kl_k3'),
      old_kl_k3: mean('old_kl_k3'),
      entropy: mean('entropy'),
    },
  };
}
