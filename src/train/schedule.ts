import { cos } from '../native/elementary.js';
export interface ScheduleOptions {
  readonly learning_rate: number;
  readonly lr_scheduler_type: 'constant' | 'linear' | 'cosine';
  readonly warmup_ratio: number;
  readonly totalSteps: number;
}

/**
 * Learning rate of step `step` (from 0), equal to transformers' schedulers: linear warm-up over ⌈warmup · total⌉ steps,
 * then constant, or linear or half-cosine decay to 0 after the last step.
 */
export function learningRateAt(
  step: number,
  {
    learning_rate: learningRate,
    lr_scheduler_type: type,
    warmup_ratio: warmupRatio,
    totalSteps,
  }: ScheduleOptions,
): number {
  const warmup = Math.ceil(warmupRatio * totalSteps);
  if (step < warmup) return (learningRate * step) / Math.max(1, warmup);
  if (type === 'constant') return learningRate;
  const progress = (step - warmup) / Math.max(1, totalSteps - warmup);
  const factor = type === 'linear' ? 1 - progress : 0.5 * (1 + cos(Math.PI * progress));
  return learningRate * Math.max(0, factor);
}
