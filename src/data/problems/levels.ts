/** The difficulty of a problem. */
export interface Level {
  /** Min and max number of operations. */
  readonly operations: readonly [number, number];
  /** Range of the numbers that a story begins with, and of those that it adds or takes away. */
  readonly start: readonly [number, number];
  readonly change: readonly [number, number];
  /** Max factor of a multiplication. */
  readonly factor: number;
  readonly maxValue: number;
  /** Max sentences that have nothing to do with the question. */
  readonly distractors: number;
  /** Whether sentences whose order is free are shuffled. */
  readonly shuffled: boolean;
  /** Share of problems with a coarse answer, which a wrong number may also give. */
  readonly coarse: number;
}

/** Levels 1 to 4. */
export const LEVELS: readonly Level[] = [
  {
    operations: [1, 2],
    start: [3, 30],
    change: [2, 20],
    factor: 3,
    maxValue: 60,
    distractors: 0,
    shuffled: false,
    coarse: 0.4,
  },
  {
    operations: [3, 4],
    start: [5, 60],
    change: [3, 50],
    factor: 4,
    maxValue: 150,
    distractors: 0,
    shuffled: false,
    coarse: 0.35,
  },
  {
    operations: [5, 6],
    start: [10, 99],
    change: [5, 99],
    factor: 6,
    maxValue: 600,
    distractors: 2,
    shuffled: true,
    coarse: 0.15,
  },
  {
    operations: [7, 8],
    start: [10, 99],
    change: [5, 99],
    factor: 9,
    maxValue: 999,
    distractors: 3,
    shuffled: true,
    coarse: 0.15,
  },
];
