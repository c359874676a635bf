/** Rewards by a user's own function, in a module of JavaScript or of TypeScript that Node can load. */

import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { badFile } from '../files/data-error.js';
import { StepTrainError } from '../native/errors.js';
import type { RewardedSolution, SolutionReward, SourceReward } from './reward.js';

/**
 * The default export of a reward module. It gets some solutions together and returns a reward for each: a number, or one
 * with rewards of steps. `signal` is aborted when the run is stopped or the time is over.
 */
export type RewardFunction = (
  solutions: readonly RewardedSolution[],
  context: { readonly signal: AbortSignal },
) => readonly (number | SourceReward)[] | Promise<readonly (number | SourceReward)[]>;

export interface FunctionRewardOptions {
  /** Max solutions of a call. */
  readonly batch: number;
  /** Seconds that a call may take. */
  readonly timeout: number;
}

/** @throws DataError for a module that cannot be loaded or exports no function */
export async function loadRewardFunction(path: string): Promise<RewardFunction> {
  const file = resolve(path);
  const loaded = (await import(pathToFileURL(file).href).catch((error: unknown) => {
    throw badFile(`the reward module cannot be loaded: ${(error as Error).message}`, { file });
  })) as { readonly default?: unknown };
  if (typeof loaded.default === 'function') return loaded.default as RewardFunction;
  throw badFile(
    'the reward module has no default export that is a function; write: export default (solutions) => solutions.map(…)',
    { file },
  );
}

export function functionReward(
  reward: RewardFunction,
  { batch, timeout }: FunctionRewardOptions,
): SolutionReward {
  return {
    name: 'function',
    async score(solutions, signal) {
      const rewards: SourceReward[] = [];
      for (let at = 0; at < solutions.length; at += batch) {
        if (signal?.aborted) return undefined;
        const part = solutions.slice(at, at + batch);
        const given = await called(reward, part, timeout, signal).catch((error: unknown) =>
          rethrown(error, (one) => called(reward, [one], timeout, signal), part),
        );
        if (!given) return undefined;
        rewards.push(...given);
      }
      return rewards;
    },
  };
}

/** Asks for each solution alone, so that the error names the one that the function fails at. */
async function rethrown(
  error: unknown,
  alone: (solution: RewardedSolution) => Promise<unknown>,
  solutions: readonly RewardedSolution[],
): Promise<never> {
  const isSlow = error instanceof StepTrainError && error.code === 'E_TIMEOUT';
  if (solutions.length > 1 && !isSlow) for (const solution of solutions) await alone(solution);
  throw error;
}

/** One call; undefined where the run was stopped meanwhile. */
async function called(
  reward: RewardFunction,
  solutions: readonly RewardedSolution[],
  timeout: number,
  signal: AbortSignal | undefined,
): Promise<SourceReward[] | undefined> {
  const ended = new AbortController();
  const any = AbortSignal.any([ended.signal, ...(signal ? [signal] : [])]);
  let timer: NodeJS.Timeout | undefined;
  const stopped = new Promise<undefined>((done, fail) => {
    signal?.addEventListener('abort', () => done(undefined), { once: true, signal: ended.signal });
    timer = setTimeout(
      () => fail(failure(`gave no answer within ${timeout} s`, solutions, { code: 'E_TIMEOUT' })),
      1000 * timeout,
    );
  });
  try {
    const given = await Promise.race([Promise.resolve(reward(solutions, { signal: any })), stopped]);
    if (given === undefined && signal?.aborted) return undefined;
    if (!Array.isArray(given) || given.length !== solutions.length)
      throw failure(
        `returned ${Array.isArray(given) ? `${given.length} rewards` : String(given)} instead of ${solutions.length} rewards`,
        solutions,
      );
    return given.map((one: number | SourceReward | null | undefined, i) => {
      if (typeof one === 'number') return { value: one };
      if (typeof one?.value === 'number') return one;
      throw failure(`returned ${JSON.stringify(one)} instead of a number or { value, steps }`, [
        solutions[i] as RewardedSolution,
      ]);
    });
  } catch (error) {
    if (error instanceof StepTrainError) throw error;
    throw failure(`failed: ${error instanceof Error ? error.message : String(error)}`, solutions, {
      cause: error,
    });
  } finally {
    clearTimeout(timer);
    ended.abort();
  }
}

function failure(
  what: string,
  solutions: readonly RewardedSolution[],
  { cause, code = 'E_REWARD' }: { readonly cause?: unknown; readonly code?: StepTrainError['code'] } = {},
): StepTrainError {
  const [first] = solutions;
  const shown = JSON.stringify({
    problem: first?.problem.problem.slice(0, 120),
    text: first?.text.slice(0, 120),
  });
  const which =
    solutions.length === 1 ? 'for the solution' : `for ${solutions.length} solutions, the first of which is`;
  return new StepTrainError(code, `reward function: it ${what}, ${which} ${shown}`, { cause });
}
