/** A teacher behind a server: the log-prob of each token of a text, by `prompt_logprobs` of vLLM and steptrain serve. */
import { atOnce } from '../../remote/at-once.js';
import { RemoteError } from '../../remote/errors.js';
import { parsedAnswer } from '../../remote/events.js';
import { endpointOf, received } from '../../remote/http-request.js';
import { isObject } from '../../remote/protocol.js';
import { retrying } from '../../remote/retry.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';

/** A server; `STEPTRAIN_API_KEY` of the environment is sent as its key. */
export interface ServedTeacher {
  readonly url: string;
  /** The name under which the server has the model. */
  readonly model: string;
  /** Requests at a time. */
  readonly concurrency: number;
  /** The student's. A server that says another text of a token is refused. */
  readonly tokenizer: Pick<Tokenizer, 'tokenBytes'>;
}

/** A prompt with its answer, in tokens. */
export interface Asked {
  readonly prompt: readonly number[];
  readonly tokens: readonly number[];
}

const RETRY = { attempts: 8, backoffMs: 500, maxBackoffMs: 30_000 };

/**
 * Log-probs at temperature 1 of the tokens of each answer, in nats; undefined if the signal stopped it.
 *
 * @throws RemoteError where the server refuses, fails after all tries, gives other tokens than it was asked about, or
 *   has another tokenizer
 */
export async function servedLogprobs(
  { url, model, concurrency, tokenizer }: ServedTeacher,
  asked: readonly Asked[],
  signal: AbortSignal,
): Promise<number[][] | undefined> {
  const limits = { concurrency, connectSeconds: 10, idleSeconds: 300 };
  const endpoint = endpointOf({ url, key: process.env.STEPTRAIN_API_KEY, ...limits }, 'teacher.url');
  const found: number[][] = asked.map(() => []);
  const whole = await atOnce(asked, { concurrency, signal }, async ({ prompt, tokens }, i, stop) => {
    if (tokens.length === 0) return;
    const ids = [...prompt, ...tokens];
    const body = { model, prompt: ids, max_tokens: 1, temperature: 0, prompt_logprobs: 0 };
    const what = `teacher.url: ${model} at ${endpoint.base.host}`;
    const text = await retrying(what, RETRY, stop, () => received(endpoint, '/v1/completions', body, stop));
    found[i] = logprobsIn(text, ids, tokenizer).slice(prompt.length);
  });
  return whole ? found : undefined;
}

/** The log-prob of each token, NaN for the first, which nothing predicts. */
function logprobsIn(text: string, ids: readonly number[], tokenizer: ServedTeacher['tokenizer']): number[] {
  const list = promptLogprobs(text);
  if (!Array.isArray(list) || list.length !== ids.length)
    throw new RemoteError(
      `teacher.url: expected prompt_logprobs of ${ids.length} tokens, found ${Array.isArray(list) ? `those of ${list.length}` : 'none'}; ` +
        'it must be a steptrain serve or vLLM, and take token ids as they are',
    );
  return list.map((alternatives, t) => {
    if (t === 0) return Number.NaN;
    const own = isObject(alternatives) ? alternatives[String(ids[t])] : undefined;
    const logprob = isObject(own) ? own.logprob : own;
    if (typeof logprob !== 'number')
      throw new RemoteError(`teacher.url: the server says no log-prob of token ${ids[t]} at place ${t}`);
    checkToken(ids[t]!, isObject(own) ? own.decoded_token : undefined, tokenizer);
    return logprob;
  });
}

/** Printable ASCII at the heart of a token's text, which every server writes alike; else undefined. */
const plain = (text: string) => /^[\s▁Ġ]*([!-~]+)\s*$/.exec(text)?.[1];

/** A token of another text would be compared with a token of this one. */
function checkToken(id: number, said: unknown, tokenizer: ServedTeacher['tokenizer']): void {
  if (typeof said !== 'string') return;
  const own = Buffer.from(tokenizer.tokenBytes(id)).toString();
  const [theirs, ours] = [plain(said), plain(own)];
  if (theirs === undefined || ours === undefined || theirs === ours) return;
  throw new RemoteError(
    `teacher.url: token ${id} is ${JSON.stringify(said)} to the server and ${JSON.stringify(own)} to the student: they have other ` +
      'tokenizers, so that their log-probs are not of the same texts; serve a teacher of the same tokenizer',
  );
}

function promptLogprobs(text: string): unknown {
  const answer = parsedAnswer(text);
  const choice = isObject(answer) && Array.isArray(answer.choices) ? answer.choices[0] : undefined;
  return isObject(choice) ? choice.prompt_logprobs : undefined;
}
