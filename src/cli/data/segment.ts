// `steptrain data segment`: texts with chains of thought as rows of steps, by a rule with a version.

import { BadRow } from '../../data/bad-row.js';
import { isRow } from '../../data/columns.js';
import { dataFiles } from '../../data/files.js';
import { objectRows } from '../../data/rows.js';
import { solutionText } from '../../data/solution-rows.js';
import { writeFileAtomically } from '../../files/atomic-file.js';
import { DataError } from '../../files/data-error.js';
import { exactText } from '../../files/exact-json.js';
import { plural } from '../../native/shown.js';
import { type Segmentation, segmentSteps } from '../../records/segment.js';
import { UsageError } from '../line/error.js';
import { checkNewFile } from '../line/usage.js';

export interface SegmentArguments {
  readonly from: string;
  /** A new .jsonl file. */
  readonly to: string;
  readonly rule: Segmentation;
  readonly problem?: string | undefined;
  readonly solution?: string | undefined;
}

interface Counts {
  solutions: number;
  thoughts: number;
  answers: number;
  /** Texts without a step, which are left out. */
  empty: number;
}

/**
 * Writes a row for each text, its columns beside `problem`, `steps` without labels, their `spans` in the text, the `parts` that they stand in, the `text`
 * and the rule as `segmentation`. The file appears when it is complete.
 *
 * @throws UsageError for an unsuitable or existing file name; DataError, with file and line, for a row without a problem and a text
 */
export async function segmentData({ from, to, rule, ...columns }: SegmentArguments) {
  checkNewFile(to, '.jsonl');
  const counts: Counts = { solutions: 0, thoughts: 0, answers: 0, empty: 0 };
  await writeFileAtomically(to, segmented(from, rule, columns, counts));
  return { ...counts, rule, to };
}

async function* segmented(
  from: string,
  rule: Segmentation,
  columns: Pick<SegmentArguments, 'problem' | 'solution'>,
  counts: Counts,
): AsyncGenerator<Buffer> {
  for (const file of await dataFiles(from))
    for await (const { row, position } of objectRows(file)) {
      let found: ReturnType<typeof solutionText>;
      try {
        found = solutionText(row, columns);
      } catch (error) {
        throw error instanceof BadRow ? new DataError('row', error.message, position) : error;
      }
      const steps = segmentSteps(found.text, rule);
      if (steps.length === 0) {
        counts.empty++;
        continue;
      }
      counts.solutions++;
      for (const { part } of steps) counts[part === 'thought' ? 'thoughts' : 'answers']++;
      const result = {
        problem: found.problem,
        steps: steps.map(({ text }) => ({ text, label: null })),
        spans: steps.map(({ start, end }) => [start, end]),
        parts: steps.map(({ part }) => part),
        text: found.text,
        segmentation: rule,
      };
      // Rows of this command may be cut by another rule, unless somebody has labelled their steps.
      const isOwn = row.segmentation !== undefined && isUnlabelled(row.steps);
      const lost = Object.entries(result).find(
        ([name, value]) => !isOwn && Object.hasOwn(row, name) && row[name] !== value,
      );
      if (lost !== undefined)
        throw new DataError(
          'row',
          `column '${lost[0]}' is there already, and would be lost under the one that is written; rename it, or remove it`,
          position,
        );
      const written = { ...row, ...result };
      yield Buffer.from(`${exactText(written)}\n`);
    }
  if (counts.solutions === 0) throw new UsageError(`${from} gives no steps; nothing was written`);
}

const isUnlabelled = (steps: unknown) =>
  Array.isArray(steps) && steps.every((step: unknown) => isRow(step) && step.label === null);

export function formatSegmented({
  solutions,
  thoughts,
  answers,
  empty,
  rule,
  to,
}: Awaited<ReturnType<typeof segmentData>>): string {
  const steps = thoughts + answers;
  return [
    `${plural(solutions, 'solution')}, ${plural(steps, 'step')} by ${rule}: ${thoughts} of thoughts, ${answers} of answers; none has a label`,
    ...(empty > 0
      ? [`${plural(empty, 'text')} without a step ${empty === 1 ? 'was' : 'were'} left out`]
      : []),
    `wrote ${to}`,
  ].join('\n');
}
