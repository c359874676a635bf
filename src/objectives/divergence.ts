import { openTape } from '../autograd/tape.js';
import type { Tensor } from '../runtime/tensor.js';
import type { Objective } from './statistics.js';

export type DivergenceStatistic = 'reverse_kl' | 'forward_kl' | 'entropy' | 'agreement' | 'weight';

const STATISTICS: readonly DivergenceStatistic[] = [
  'reverse_kl',
  'forward_kl',
  'entropy',
  'agreement',
  'weight',
];

/** Logits f32 [R, V] of student and teacher over one vocabulary, each over its temperature. */
export interface DivergenceInputs {
  /** Differentiable. */
  readonly student: Tensor;
  readonly teacher: Tensor;
  /** f32 [R]: mask and normaliser. A row of weight 0 is not read. */
  readonly weights: Tensor;
}

/**
 * Σ w·D, the generalised Jensen-Shannon divergence (arXiv 2306.13649, equation 1) of two next-token distributions: KL(teacher ‖ student) at
 * beta 0, KL(student ‖ teacher) at beta 1, and between them beta·KL(teacher ‖ m) + (1 − beta)·KL(student ‖ m) with the mixture
 * m = (1 − beta)·student + beta·teacher, in nats. Statistics are means by weight: both KLs, the student's entropy, the share of rows at
 * which both find one token the most likely; and Σ w.
 *
 * @param beta from 0 to 1. Default 1
 * @throws StepTrainError E_RANGE for another beta
 */
export function divergence(
  { student, teacher, weights }: DivergenceInputs,
  beta?: number,
): Objective<DivergenceStatistic> {
  const { loss, dstudent, stats } = student.device.ops.divergence({ student, teacher, weights, beta });
  openTape()?.recordLoss(loss, [[student, dstudent]]);
  return { loss, statistics: { names: STATISTICS, values: stats } };
}

/** Log-probs f32 [R] of the sampled tokens. */
export type SampledDivergenceInputs = DivergenceInputs;

/**
 * Σ w·KL(student ‖ teacher) of what is known where a teacher says the log-prob of one token alone: of two classes, that token and all
 * others. At most KL(student ‖ teacher) of the whole vocabulary. `lead` is the mean by weight of student − teacher.
 */
export function sampledDivergence({
  student,
  teacher,
  weights,
}: SampledDivergenceInputs): Objective<'lead' | 'weight'> {
  const { loss, dstudent, stats } = student.device.ops.sampled_divergence({ student, teacher, weights });
  openTape()?.recordLoss(loss, [[student, dstudent]]);
  return { loss, statistics: { names: ['lead', 'weight'], values: stats } };
}
