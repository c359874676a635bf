/** Solutions that are episodes in an environment, sampled from the weights that a role has at that moment. */
import { rowsOf, type SamplingKeys } from '../../config/sampling.js';
import type { Environment } from '../../environments/environment.js';
import { type Episode, runEpisodes } from '../../environments/episodes.js';
import { openEnvironment } from '../../environments/open.js';
import { Generator } from '../../generate/generator.js';
import { roomToGenerate } from '../../generate/room.js';
import type { Decoder, Role } from '../../models/decoder.js';
import { defined } from '../../native/defined.js';
import { stepOfTurn, type Turns } from '../../records/turns.js';
import { RunError } from '../../run/error.js';
import { processesOf } from '../../runtime/processes.js';
import { warn } from '../../terminal/log.js';
import { endTokens } from '../../tokenizer/reply-end.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { SolutionPrompt } from './prompts.js';
import { requestOf, type SampledSolution, type SamplingRound } from './solution-source.js';

/** The environment of a run. */
export interface RunEnvironment {
  /** The environment, in the form that `openEnvironment` takes. */
  readonly name: string;
  readonly maxTurns: number;
  /** Max tokens of an episode, with what comes back. */
  readonly longest: number;
  /** Seconds that it may take for an answer. */
  readonly timeout: number;
}

/** The model that is sampled, and how. */
export interface SampledModel {
  readonly decoder: Decoder;
  /** Role whose weights are sampled, as they are at the time of sampling. */
  readonly role: Pick<Role, 'adapter'>;
  readonly tokenizer: Tokenizer;
  readonly sampling: SamplingKeys;
  readonly seed: number;
  /** Bytes for keys and values, from the memory plan. Default: all that fits. */
  readonly cacheBytes?: number | undefined;
}

/**
 * Episodes by prompt and number; undefined if the signal stopped it.
 *
 * @throws RunError where the environment failed in all of them
 */
export async function sampleEpisodes(
  { decoder, role, tokenizer, sampling, seed, cacheBytes }: SampledModel,
  { name, maxTurns, longest, timeout }: RunEnvironment,
  prompts: readonly SolutionPrompt[],
  round: SamplingRound,
): Promise<readonly (readonly SampledSolution[])[] | undefined> {
  const { skip, onSample, counts = false } = round;
  if (processesOf(decoder.device))
    throw new RunError(
      'rollout.environment runs in one process, and this job has several; start the run alone',
    );
  const {
    n,
    maxNewTokens,
    onSample: _,
    ...request
  } = requestOf(prompts, round, { sampling, seed }, solutionOfEpisode);
  const ids = prompts.map((prompt) => prompt.ids);
  const newTokens = Math.max(1, longest - Math.max(...ids.map(({ length }) => length)));
  const limits = { maxRows: rowsOf(sampling.max_rows), cacheBytes };
  using generator = new Generator(
    decoder,
    roomToGenerate(decoder, ids, { ...request, n, maxNewTokens: newTokens, ...limits }),
  );
  let environment: Environment | undefined;
  try {
    environment = await openEnvironment(name);
    const tasks = prompts.map(({ task }) => ({ ...task }));
    const episodes = await runEpisodes(generator, tokenizer, environment, tasks, {
      ...request,
      ...{ n, role, maxTurns, maxNewTokens, maxLength: longest, timeout, skip },
      eosTokenIds: endTokens(decoder.config, tokenizer),
      onEpisode: (episode) =>
        onSample?.(episode.task, episode.sample, solutionOfEpisode(episode, environment?.tools)),
    });
    if (!episodes) return undefined;
    const failed = episodes.filter(({ finish }) => finish === 'failed');
    if (failed.length > 0) sayFailed(failed, episodes.length, counts);
    const found = prompts.map((): SampledSolution[] => Array.from({ length: n }, () => SKIPPED));
    for (const episode of episodes)
      (found[episode.task] as SampledSolution[])[episode.sample] = solutionOfEpisode(
        episode,
        environment.tools,
      );
    return found;
  } finally {
    await environment?.dispose?.();
  }
}

/** Episodes of a batch from which on it is not by chance that the environment fails in each. */
const MANY = 4;

/** @throws RunError where it failed in all of many episodes, from which nothing would be learned or known */
function sayFailed(failed: readonly Episode[], of: number, counts: boolean): void {
  const reason = `the environment failed, the first with: ${failed[0]?.failure}`;
  if (failed.length === of && of >= MANY)
    throw new RunError(`in all ${of} episodes ${reason}; mend it, and go on with --resume`);
  warn(`${failed.length} of ${of} episodes ${counts ? 'count as unsolved' : 'are left out'}, as ${reason}`);
}

/** Placeholder of a sample that was not asked for. */
const SKIPPED: SampledSolution = { tokens: [], logprobs: [], text: '', finishReason: 'length' };

function solutionOfEpisode(episode: Episode, tools: readonly unknown[] = []): SampledSolution {
  const { prompt, promptIds, turns, finish, failure } = episode;
  let drawn = 0;
  const ends = turns.map(({ tokens }) => {
    drawn += tokens.length;
    return drawn - 1;
  });
  return {
    tokens: turns.flatMap(({ tokens }) => tokens),
    logprobs: turns.flatMap(({ logprobs }) => logprobs),
    text: turns.at(-1)?.message.content ?? '',
    finishReason: finish === 'done' ? 'stop' : 'length',
    turns: defined({
      promptIds,
      ends,
      between: turns.map(({ between }) => between),
      rewards: turns.map(({ reward }) => reward ?? null),
      conversation: defined<Turns>({
        prompt,
        tools: tools.length > 0 ? tools : undefined,
        steps: turns.map(stepOfTurn),
      }),
      failure,
    }),
  };
}
