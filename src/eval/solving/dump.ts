// problems.jsonl: every problem with its samples, their answers and whether they are right; `eval compare` reads it.
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import type { Problem } from '../../data/benchmarks/problem.js';
import { objectRows } from '../../data/rows.js';
import { writeFileAtomically } from '../../files/atomic-file.js';
import { typedCommand } from '../../native/typed-command.js';
import type { Step } from '../../records/record.js';
import { readableResults, readableStep } from '../../records/turns.js';
import { RunError } from '../../run/error.js';
import { readAs } from '../read-as.js';
import type { GradedSample } from './sample.js';
import { drawn } from './samples-file.js';

export const PROBLEMS = 'problems.jsonl';

/** A problem with its samples, in order. */
export interface SolvedProblem extends Problem {
  readonly samples: readonly GradedSample[];
}

/** Writes them into `directory`, whole or not at all. */
export async function writeSolvedProblems(
  directory: string,
  problems: readonly SolvedProblem[],
): Promise<void> {
  const lines = function* () {
    for (const { samples, solution: _, generated: _plan, ...problem } of problems) {
      const own = samples.map(({ problem: _, sample: _number, episode, ...sample }) => ({
        ...sample,
        ...(episode
          ? { turn_rewards: episode.rewards, turns: episode.conversation.steps.map(shownTurn) }
          : {}),
      }));
      yield Buffer.from(`${JSON.stringify({ ...problem, samples: own })}\n`);
    }
  };
  await writeFileAtomically(join(directory, PROBLEMS), lines());
}

/** A turn of an episode to read, with what came back for it. */
const shownTurn = (step: Step) => ({ text: readableStep(step), results: readableResults(step) });

const problemSchema = z.strictObject({
  problem: z.string(),
  answer: z.string(),
  id: z.string().exactOptional(),
  group: z.string().exactOptional(),
  samples: z
    .array(
      z.strictObject({
        ...drawn,
        answer: z.string().nullable(),
        right: z.boolean(),
        score: z.number().nullable().exactOptional(),
        scores: z.record(z.string(), z.number().nullable()).exactOptional(),
        steps: z.array(z.literal([0, 1, null])).exactOptional(),
        turn_rewards: z.array(z.number().nullable()).exactOptional(),
        turns: z.array(z.strictObject({ text: z.string(), results: z.array(z.string()) })).exactOptional(),
      }),
    )
    .min(1),
});

/**
 * Reads the dump of an output directory, or the file itself.
 *
 * @throws RunError if there is none, or with the line that is no solved problem
 */
export async function readSolvedProblems(path: string): Promise<SolvedProblem[]> {
  if (!existsSync(path)) throw new RunError(`there is no directory ${path}`);
  const file = statSync(path).isDirectory() ? join(path, PROBLEMS) : path;
  if (!existsSync(file))
    throw new RunError(
      `${path} holds no ${PROBLEMS}; solve its problems to the end with: ${typedCommand('eval solve')}`,
    );
  const problems: SolvedProblem[] = [];
  for await (const { row, where } of objectRows(file)) {
    const { samples, ...problem } = readAs(problemSchema, row, `${where} is no solved problem`);
    const n = problems[0]?.samples.length ?? samples.length;
    if (samples.length !== n)
      throw new RunError(`${where} has ${samples.length} samples, and the problems before it have ${n}`);
    const index = problems.length;
    problems.push({
      ...problem,
      samples: samples.map((own, sample) => ({ ...own, problem: index, sample })),
    });
  }
  if (problems.length === 0) throw new RunError(`${file} holds no problem`);
  return problems;
}
