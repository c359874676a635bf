import type { StepRecord } from '../records/record.js';
import type { Segment } from '../tokenizer/segments.js';

/** Options for turning a solution into text to learn. */
export interface SolutionOptions {
  /**
   * The learned tokens: every token of the steps (default), or only those after the last `=` of each step, the line
   * break included, since in arithmetic the rest is copied from the problem.
   */
  readonly learn?: 'steps' | 'results';
  /** Text that ends a solution and is learned, such as the end-of-text token. Default none. */
  readonly end?: string;
  /** Also learn the line break between problem and solution, so that a model which is not given it writes it. */
  readonly learnBreak?: boolean;
}

/**
 * A problem and its steps as plain text, one per line: the layout of the compact verdict prompt, so that a model
 * pretrained on it knows the layout of its later task.
 */
export function solutionSegments(
  record: Pick<StepRecord, 'problem' | 'steps'>,
  { learn = 'steps', end = '', learnBreak = false }: SolutionOptions = {},
): readonly Segment[] {
  const segments: Segment[] = learnBreak
    ? [
        { text: record.problem, role: 'prompt', train: false },
        { text: '\n', role: 'prompt', train: true },
      ]
    : [{ text: `${record.problem}\n`, role: 'prompt', train: false }];
  for (const [step, { text, label }] of record.steps.entries()) {
    const resultAt = learn === 'results' ? text.lastIndexOf('=') + 1 : 0;
    if (resultAt > 0)
      segments.push({ text: text.slice(0, resultAt), role: 'step', step, label, train: false });
    segments.push({ text: `${text.slice(resultAt)}\n`, role: 'step', step, label, train: true });
  }
  if (end !== '') segments.push({ text: end, role: 'end', train: true });
  return segments;
}
