/** The cases of training on answers beside TRL's trainers. */
import type { FloatType, Group, TrainerCase } from './cases.js';
import { trainerCase } from './counted-cases.js';
import { SMALL } from './models.js';

const METHODS: readonly (readonly [TrainerCase['method'], FloatType])[] = [
  ['sft', 'f32'],
  ['dpo', 'f32'],
  ['kto', 'f32'],
  ['prm', 'f32'],
  ['prm', 'bf16'],
];

/** A group each: processes that hold one case alone have their own memory. */
export function trainerGroups(): readonly Group[] {
  return METHODS.map(([method, dtype]) => ({
    title: `${method.toUpperCase()} step, LoRA r = 16, ${dtype}, a model of 12M parameters`,
    cases: [trainerCase(dtype, SMALL, method, { answers: 16, prompt: 64, answer: 64, rank: 16 })],
    // In bf16 TRL's weights may be so, or f32 ones under autocast, which is its default.
    settings: dtype === 'f32' ? ['TRL'] : ['TRL', 'TRL, autocast'],
    // Not measured: beside a trainer's own work the share of a peak says little, and memory is to be that of the step.
    limits: [],
  }));
}
