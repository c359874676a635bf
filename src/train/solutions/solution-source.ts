/** The interface of samplers of solutions, local or remote. */
import type { SamplingKeys } from '../../config/sampling.js';
import type { Turns } from '../../records/turns.js';
import type { SolutionPrompt } from './prompts.js';

/** The turns of an episode. */
export interface SolutionTurns {
  /** Tokens before the first turn, as the environment opened the episode. */
  readonly promptIds: readonly number[];
  /** Index of the last token of each turn among those that were drawn. */
  readonly ends: readonly number[];
  /** Tokens after each turn that nobody drew: results of tools, and what the chat template writes around them. */
  readonly between: readonly (readonly number[])[];
  /** Rewards that the environment gave; null where it gave none. */
  readonly rewards: readonly (number | null)[];
  readonly conversation: Turns;
  /** Why the environment failed; its solution teaches nothing. */
  readonly failure?: string;
}

/** Whether an environment counts an episode as solved: its rewards add up to at least one half. Undefined where it gave none. */
export function isSolved(turns: Pick<SolutionTurns, 'rewards'> | undefined): boolean | undefined {
  const given = turns?.rewards.filter((reward) => reward !== null) ?? [];
  return given.length === 0 ? undefined : given.reduce((sum, reward) => sum + reward, 0) >= 0.5;
}

/** One solution. */
export interface SampledSolution {
  /** All drawn tokens, including the one that ended the solution. */
  readonly tokens: readonly number[];
  /** log p of each token at the temperature of sampling, over the whole vocabulary; in nats. */
  readonly logprobs: readonly number[];
  /** Text without special tokens, up to a stop text; of an episode the last turn. */
  readonly text: string;
  /** The turns, where the solution is an episode in an environment; `tokens` are those of its turns alone. */
  readonly turns?: SolutionTurns;
  /** `stop`: it ended by itself; `length`: it was cut off at the most tokens, its own or the model's. */
  readonly finishReason: 'stop' | 'length';
  /** Number of the server that drew it, from 1. */
  readonly server?: number;
  /** Rounds that the policy learned from since the one that drew it, where rounds are drawn ahead. */
  readonly staleness?: number;
}

export interface SamplingRound {
  /** Gives rounds with one seed different random numbers. */
  readonly iteration: number;
  /** Samples of each prompt. Default: `num_generations`. */
  readonly n?: number;
  /** Whether every sample counts, as in an evaluation, also one whose environment failed. Default false. */
  readonly counts?: boolean;
  /** Ends the round after the token that is being computed. */
  readonly signal?: AbortSignal | undefined;
  /** The next rounds, of `n` samples each: a server draws them meanwhile, from the policy as it is now. */
  readonly ahead?: readonly { readonly iteration: number; readonly prompts: readonly SolutionPrompt[] }[];
  /** Tells which samples the caller has already; the returned ones in their place are meaningless. */
  readonly skip?: (prompt: number, sample: number) => boolean;
  /** Called with each sample when it has ended, before all of them are returned. */
  readonly onSample?: (prompt: number, sample: number, ended: SampledSolution) => void;
}

/** The request for a generator or a server; `given` converts a drawn sample. */
export function requestOf<Ended>(
  prompts: readonly SolutionPrompt[],
  { iteration, n, signal, skip, onSample }: SamplingRound,
  { sampling, seed }: { readonly sampling: SamplingKeys; readonly seed: number },
  given: (ended: Ended) => SampledSolution,
) {
  return {
    n: n ?? sampling.num_generations,
    maxNewTokens: sampling.max_new_tokens,
    temperature: sampling.temperature,
    topP: sampling.top_p,
    topK: sampling.top_k,
    minP: sampling.min_p,
    seed,
    iteration,
    promptIds: prompts.map(({ id }) => id),
    ...(signal ? { signal } : {}),
    ...(skip ? { skip } : {}),
    ...(onSample
      ? { onSample: (prompt: number, i: number, ended: Ended) => onSample(prompt, i, given(ended)) }
      : {}),
  };
}

/** Where solutions come from: a model in this process, or a server. */
export interface SolutionSource {
  /** Samples by prompt; undefined if the signal stopped it. */
  sample(
    prompts: readonly SolutionPrompt[],
    round: SamplingRound,
  ): Promise<readonly (readonly SampledSolution[])[] | undefined>;
  /** Frees its resources on a server. */
  dispose?(): void;
}
