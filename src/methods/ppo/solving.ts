/** Samples a policy's solutions, here or on a server, and solves held-out problems before and after its training. */
import { concurrencyOf } from '../../config/sampling.js';
import { writeSolvedProblems } from '../../eval/solving/dump.js';
import { flatMetrics, type SolvedReport } from '../../eval/solving/run-report.js';
import { typedCommand } from '../../native/typed-command.js';
import { askedOnce } from '../../remote/asked-once.js';
import { remoteSource } from '../../remote/remote-source.js';
import { processesOf } from '../../runtime/processes.js';
import { endTokens } from '../../tokenizer/reply-end.js';
import type { Evaluation } from '../../train/method.js';
import { accuracyOf, judgedByOracle, solvedByGroup, solveHeldOut } from '../../train/solutions/held-out.js';
import { type LocalSolutionsOptions, localSolutions } from '../../train/solutions/local-solutions.js';
import { remoteSolutions } from '../../train/solutions/remote-solutions.js';
import type { SolutionSource } from '../../train/solutions/solution-source.js';
import type { BaseSolutions } from './base.js';
import type { SolvingRun } from './run.js';

/** Solves the held-out problems again, and reports them beside those of the model before training; undefined if the signal stopped it. */
export async function solvedBeforeAndAfter(
  open: SolvingRun,
  base: BaseSolutions,
  tokens: number,
  signal: AbortSignal,
): Promise<Evaluation | undefined> {
  const { test, validation } = open.data.parts;
  const solved = await solve(open, 'test', signal);
  const chosen = validation.problems.length > 0 && (await solve(open, 'validation', signal));
  if (!solved) return undefined;
  if (signal.aborted) return undefined;
  const after = await judgedByOracle(test.problems, solved);
  const before = await judgedByOracle(test.problems, base.test);
  const groups = solvedByGroup(test.problems, after);
  await writeSolvedProblems(
    open.run.path,
    test.problems.map(({ problem, answer }, i) => ({ problem, answer, samples: after[i] ?? [] })),
  );
  const report: SolvedReport = {
    method: open.config.method,
    unit: 'problems',
    data: { problems: test.problems.length, trained_tokens: tokens },
    metrics: flatMetrics(groups),
    ...(chosen ? { metrics_validation: flatMetrics(solvedByGroup(validation.problems, chosen)) } : {}),
    models: { before: solvedByGroup(test.problems, before), after: groups },
  };
  return {
    metrics: { accuracy: accuracyOf(after), accuracy_before: accuracyOf(before) },
    solved: report,
  };
}

export function samplingOf({
  config,
  data,
  roles,
  tokenizer,
  cacheBytes,
}: SolvingRun): LocalSolutionsOptions {
  const { rollout, run } = config;
  return {
    decoder: roles.decoder,
    role: roles.policy,
    tokenizer,
    sampling: { ...rollout, stop: [...data.prompt.stop, ...rollout.stop] },
    seed: run.seed,
    cacheBytes,
    environment:
      rollout.environment === undefined
        ? undefined
        : {
            name: rollout.environment,
            maxTurns: rollout.max_turns,
            longest: config.data.max_length,
            timeout: rollout.turn_timeout,
          },
  };
}

/** The source of rollouts: this process, or the configured server. */
export function rolloutSolutions(
  { config: { rollout }, roles, run }: SolvingRun,
  sampling: LocalSolutionsOptions,
): SolutionSource {
  const { server } = rollout;
  const { adapter } = roles.policy;
  if (!server) return localSolutions(sampling);
  const { url, kind, model, adapters, weights, key_env: keyEnv, attempts, timeout } = server;
  const seenAs = server.adapters_seen_as;
  const source = remoteSource({
    url,
    server: kind,
    model,
    keyEnv,
    attempts,
    idleSeconds: timeout,
    concurrency: concurrencyOf(rollout.max_rows),
    ...(adapters && { adapters: { directory: adapters, ...(seenAs ? { seenAs } : {}) } }),
    ...(weights && { weights: { directory: weights, ...(seenAs ? { seenAs } : {}) } }),
  });
  return remoteSolutions({
    ...sampling,
    source: askedOnce(source, processesOf(roles.decoder.device)?.cluster),
    adapter,
    eosTokenIds: endTokens(roles.decoder.config, sampling.tokenizer),
    goOn: `when the server is there again, go on with: ${typedCommand(`run --resume ${run.path}`)}`,
  });
}

export function solve(open: SolvingRun, part: 'validation' | 'test', signal: AbortSignal) {
  return solveHeldOut(open.data.parts[part], {
    ...samplingOf(open),
    n: open.config.rollout.num_generations_eval,
    signal,
  });
}
