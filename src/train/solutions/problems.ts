/** The problems of a run that samples solutions, by part of the split. */
import { basename } from 'node:path';
import { answersEqual } from '../../answers/equal.js';
import { type Grade, grade } from '../../answers/grade.js';
import type { DataConfig } from '../../config/schema.js';
import type { Problem } from '../../data/benchmarks/problem.js';
import { areWordProblems } from '../../data/generated.js';
import { limited, problemRank } from '../../data/limit.js';
import type { LoadReport } from '../../data/load.js';
import { wordProblemRecords } from '../../data/problems/records.js';
import { PARTS, type Part } from '../../data/split.js';
import { describeTraining } from '../../data/training-files.js';
import { badFile, badOption } from '../../files/data-error.js';
import { plural } from '../../native/shown.js';
import { problemText } from '../../records/same-text.js';
import { refuseTurns } from '../../records/turns.js';
import { dividedRecords } from '../../run/parts.js';
import { warn } from '../../terminal/log.js';

/**
 * A problem of a run. Its group is the level of a generated problem, the value of `data.group_by`, or the file, where
 * there are several.
 */
export interface RunProblem extends Problem {
  /** The beginning of a solution that its prompt writes: the mark that opens reasoning (`<think>`), which the solution has to end before its answer. */
  readonly opened?: string;
}

/** Grades a solution of a problem as the run asks it; one that was cut off, or never ends its reasoning, gives no answer. */
export function gradeSolution({ answer, opened = '' }: RunProblem, text: string, ended: boolean): Grade {
  return grade(text, answer, { ended, inReasoning: opened !== '' });
}

export interface ConfiguredProblems {
  readonly parts: Readonly<Record<Part, readonly RunProblem[]>>;
  readonly reports: readonly LoadReport[];
  /** Rows without an answer, which are left out. */
  readonly unanswered: number;
}

/**
 * Reads or generates the problems that `data` names, each problem once, in order.
 *
 * @param episodes whether problems are asked in an environment; else rows that are conversations with tools are refused
 * @throws DataError where a file cannot be used or no training problem has an answer
 */
export async function configuredProblems(
  data: DataConfig,
  { episodes = false }: { readonly episodes?: boolean } = {},
): Promise<ConfiguredProblems> {
  const parts: Record<Part, RunProblem[]> = { train: [], validation: [], test: [] };
  const reports: LoadReport[] = [];
  let unanswered = 0;
  const contrary = new Set<string>();
  if (data.source === 'word_problem_turns' && !episodes)
    throw badOption(
      `data.source "word_problem_turns" gives conversations, and ${ASKED_ALONE}; take "word_problems", whose problems are the same`,
    );
  if (areWordProblems(data.source)) {
    const { seed, split, word_problems: options } = data;
    for (const { part, problem: word } of wordProblemRecords({ ...options, seed, split })) {
      // A drill has no story to solve.
      if (!word) continue;
      parts[part].push({
        problem: word.problem,
        answer: word.answer,
        group: `level ${word.level}`,
        generated: word,
      });
    }
  } else {
    const seen = Object.fromEntries(PARTS.map((part) => [part, new Map<string, string>()])) as Record<
      Part,
      Map<string, string>
    >;
    for await (const { part, record, again = false } of dividedRecords(data, reports)) {
      if (!episodes) refuseTurns(record, ASKED_ALONE);
      const { problem, gold_answer: answer, gold_solution: solution, provenance, group } = record;
      const key = problemText(problem);
      if (answer === undefined) unanswered += again ? 0 : 1;
      else if (again || !seen[part].has(key))
        parts[part].push({
          problem,
          answer,
          ...(solution === undefined ? {} : { solution }),
          ...groupOf(group, provenance?.file),
        });
      if (answer === undefined) continue;
      const first = seen[part].get(key);
      if (first === undefined) seen[part].set(key, answer);
      else if (first !== answer && !answersEqual(answer, first).equal) contrary.add(problem);
    }
  }
  const [example] = contrary;
  if (example !== undefined)
    warn(
      `${plural(contrary.size, 'problem')} ${contrary.size === 1 ? 'has' : 'have'} rows with different answers, such as ${JSON.stringify(example.slice(0, 80))}: the first answer counts`,
    );
  // One file is no group.
  if (!areWordProblems(data.source))
    for (const part of PARTS)
      if (new Set(parts[part].map(({ group }) => group)).size < 2)
        parts[part] = parts[part].map(({ group: _, ...problem }) => problem);
  parts.train = [...limited(parts.train, data.max_samples, data, problemRank)];
  if (parts.train.length === 0)
    throw badFile(
      `${describeTraining(data)} gives no training problem with an answer; expected rows with a problem and its ` +
        'answer, such as those of GSM8K or MATH',
    );
  return { parts, reports, unanswered };
}

const ASKED_ALONE =
  'problems are asked here without its tools (method "grpo" samples episodes in rollout.environment)';

function groupOf(group: string | undefined, file: string | undefined): { readonly group?: string } {
  if (group !== undefined) return { group };
  return file === undefined ? {} : { group: stem(file) };
}

/** The name of a file without folder and endings. */
function stem(path: string): string {
  return basename(path).replace(/\..*$/, '');
}
