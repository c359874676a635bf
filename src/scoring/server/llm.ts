/** A language model behind an OpenAI-compatible server as a judge of steps. */
import { createHash } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { badOption, DataError } from '../../files/data-error.js';
import { replyTo } from '../../remote/chat.js';
import { endpointOf } from '../../remote/http-request.js';
import { retrying } from '../../remote/retry.js';
import { type Scorer, type Solution, scorer } from '../scorer.js';
import { openAnswerCache, openSpending } from './kept-answers.js';
import { judgePrompt, parseLabels } from './prompt.js';

export interface LlmJudgeOptions {
  /** Address, such as `http://127.0.0.1:8000/v1`. */
  readonly url: string;
  readonly model: string;
  /** Sent as `Authorization: Bearer …`, to this server alone. */
  readonly apiKey?: string | undefined;
  /** Words on what else counts, in addition to the usual request. Default none. */
  readonly rubric?: string | undefined;
  /** Default 0. */
  readonly temperature?: number;
  /** Max tokens of one answer. Default 1024. */
  readonly maxTokens?: number;
  /** Max repeated requests after an answer that is not the expected JSON. Default 2. */
  readonly retries?: number;
  /** Requests at once. Default 8. */
  readonly concurrency?: number;
  /** 0: no limit. Default 0. */
  readonly requestsPerMinute?: number;
  /** Seconds until there is a connection, and between bytes. Default 120. */
  readonly timeout?: number;
  /** Tokens read and written, over the judge's life or that of `spending`; 0: no limit. Default 0. */
  readonly tokenBudget?: number;
  /** A file of answers: a question that it has is not asked, or paid for, again. */
  readonly cache?: string | undefined;
  /** A file of spent tokens, so that budgets and the report include those of earlier judges with this file. */
  readonly spending?: string | undefined;
}

export type LlmJudgeReport = {
  /** Requests that a server answered. */
  readonly requests: number;
  readonly cached: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Solutions, and those without labels: no try gave the JSON asked for. */
  readonly solutions: number;
  readonly unlabelled: number;
};

/** Labels of steps: 1, 0, or none where no try gave the JSON asked for. */
export interface LlmJudge extends Scorer {
  report(): LlmJudgeReport;
}

/**
 * @throws RemoteError from `score` where the server cannot be reached or refuses; DataError where the budget is spent:
 * answers so
 *   far are in the cache, and the same command goes on from there
 */
export function llmJudge(options: LlmJudgeOptions): LlmJudge {
  const { url, model, retries = 2, concurrency = 8, requestsPerMinute = 0, timeout = 120 } = options;
  const { tokenBudget = 0 } = options;
  const limits = { concurrency, connectSeconds: timeout, idleSeconds: timeout };
  const endpoint = endpointOf({ url, key: options.apiKey, ...limits }, 'llmJudge');
  const { host } = endpoint.base;
  const cache = options.cache === undefined ? undefined : openAnswerCache(options.cache);
  const spending = openSpending(options.spending);
  const count = { requests: 0, cached: 0, solutions: 0, unlabelled: 0 };
  let next = 0;

  const refuseBeyondBudget = () => {
    const tokens = spending.inputTokens + spending.outputTokens;
    if (tokenBudget === 0 || tokens < tokenBudget) return;
    throw badOption(
      `the budget of the judge is spent (${tokens} tokens of ${tokenBudget}) after ${count.requests} requests; raise it and resume: what was answered is not ` +
        'asked again where judge.cache names a file',
    );
  };

  const ask = async (body: Asked, signal: AbortSignal): Promise<string> => {
    refuseBeyondBudget();
    if (requestsPerMinute > 0) {
      const now = Date.now();
      const at = Math.max(now, next);
      next = at + 60_000 / requestsPerMinute;
      if (at > now) await pause(at - now, undefined, { signal });
    }
    return retrying(`${model} at ${host}`, RETRY, signal, async () => {
      const { text, promptTokens, completionTokens } = await replyTo(
        endpoint,
        '/chat/completions',
        body,
        signal,
      );
      count.requests++;
      // A request is never of no token.
      if (promptTokens > 0) spending.add(promptTokens, completionTokens);
      else if (tokenBudget > 0)
        throw badOption(
          `${host} does not say how many tokens a request took (usage), so no budget of the judge can be kept; set ` +
            'judge.token_budget to 0, or use a server that counts',
        );
      return text;
    });
  };

  const askAndKeep = async (key: string, body: Asked, signal: AbortSignal): Promise<string> => {
    const text = await ask(body, signal);
    cache?.put(key, text);
    return text;
  };

  /** @param underWay by key what this call has asked: samples of a problem are neighbours, and often the same */
  const labelsOf = async (
    solution: Solution,
    underWay: Map<string, Promise<string>>,
    signal: AbortSignal,
  ): Promise<(0 | 1 | null)[]> => {
    const { steps } = solution;
    count.solutions++;
    if (steps.length === 0) return [];
    for (let attempt = 0; attempt <= retries; attempt++) {
      const body = {
        model,
        messages: judgePrompt(solution, options.rubric),
        // A deterministic model would give the same again.
        temperature: Math.max(options.temperature ?? 0, attempt > 0 ? 0.5 : 0),
        max_tokens: options.maxTokens ?? 1024,
        seed: attempt,
      };
      const key = createHash('sha256')
        .update(JSON.stringify([url, body]))
        .digest('hex');
      const known = cache?.get(key) ?? underWay.get(key);
      const answer = known ?? askAndKeep(key, body, signal);
      if (known !== undefined) count.cached++;
      if (answer instanceof Promise) underWay.set(key, answer);
      const labels = parseLabels(await answer, steps.length);
      if (labels) return labels;
    }
    count.unlabelled++;
    return steps.map(() => null);
  };

  const own = scorer({
    name: `${model} at ${host}`,
    readsTurns: true,
    async score(solutions, { signal = new AbortController().signal } = {}) {
      const labels: (0 | 1 | null)[][] = [];
      const stop = new AbortController();
      const either = AbortSignal.any([signal, stop.signal]);
      const underWay = new Map<string, Promise<string>>();
      let at = 0;
      const failures: unknown[] = [];
      const worker = async () => {
        try {
          while (at < solutions.length && failures.length === 0) {
            const i = at++;
            labels[i] = await labelsOf(solutions[i] as Solution, underWay, either);
          }
        } catch (error) {
          failures.push(error);
          // A spent budget does not abort requests under way: they are paid for, and their answers are kept.
          if (!(error instanceof DataError)) stop.abort();
        }
      };
      await Promise.all(Array.from({ length: Math.min(concurrency, solutions.length) }, worker));
      if (failures.length > 0) throw failures[0];
      return labels.map((scores) => ({ scores }));
    },
  });
  return {
    ...own,
    report: () => {
      const { inputTokens, outputTokens } = spending;
      return { ...count, inputTokens, outputTokens };
    },
  };
}

type Asked = Parameters<typeof replyTo>[2];

const RETRY = { attempts: 5, backoffMs: 500, maxBackoffMs: 30_000 };
