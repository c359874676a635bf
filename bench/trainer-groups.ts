/** The cases of training on answers beside TRL's trainers. */
import { type Group, type TrainerCase, trainerCase } from './cases.js';
import { SMALL } from './models.js';

const METHODS: readonly TrainerCase['method'][] = ['sft', 'dpo', 'kto'];

/** A group each: processes that hold one case alone have their own memory. */
export function trainerGroups(): readonly Group[] {
  return METHODS.map((method) => ({
    title: `${method.toUpperCase()} step, LoRA r = 16, f32, a model of 12M parameters`,
    cases: [trainerCase('f32', SMALL, method, { answers: 16, prompt: 64, answer: 64, rank: 16 })],
    settings: ['TRL'],
    // Not measured: beside a trainer's own work the share of a peak says little, and memory is to be that of the step.
    limits: [],
  }));
}
