import type { WordProblem } from '../problems/problem.js';

/** A problem with the answer that is expected of whoever solves it. */
export interface Problem {
  readonly problem: string;
  /** The final answer alone, without its solution. */
  readonly answer: string;
  /** A worked solution, where the source has one. */
  readonly solution?: string;
  /** The source's own identifier. */
  readonly id?: string;
  /** The group by which results are reported. */
  readonly group?: string;
  /** Everything that the oracle of a generated problem needs. */
  readonly generated?: WordProblem;
}
