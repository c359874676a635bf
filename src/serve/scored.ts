/** Solutions of a request through the scorer that it names, and how their scores are sent. */
import type { ServerResponse } from 'node:http';
import { DataError } from '../files/data-error.js';
import { isNotFinite, type Scorer, type Solution, type SolutionScores } from '../scoring/scorer.js';
import type { Engine } from './engine.js';
import { RequestError, UnreadTurns } from './errors.js';
import { endWithin } from './event-stream.js';
import type { RequestFields } from './request-fields.js';

export interface Scored<S = SolutionScores> {
  /** The name in requests. */
  readonly name: string;
  readonly scorer: Scorer;
  readonly scores: readonly S[];
}

/** The scorer that a request names, or the first; `scorer` is undefined where there is none of that name. */
export function askedScorer(engine: Engine, fields: RequestFields) {
  const scorers = Object.entries(engine.served.scorers ?? {});
  const model = fields.text('model');
  // Clients of vLLM send the name that /v1/models lists.
  const isServer = model === engine.served.name && !scorers.some(([each]) => each === model);
  const asked = model === undefined || isServer ? scorers[0]?.[0] : model;
  const [name, scorer] = scorers.find(([each]) => each === asked) ?? [];
  return { scorers, asked, name, scorer };
}

/**
 * @param fields everything but `model` has been read
 * @throws RequestError for an unknown scorer or field, a full queue, or where the server is going down; UnreadTurns where the chat
 * template does not read one of the conversations
 */
export async function scoredBy(
  engine: Engine,
  fields: RequestFields,
  solutions: readonly Solution[],
  signal: AbortSignal,
): Promise<Scored> {
  const { scorers, asked, name, scorer } = askedScorer(engine, fields);
  fields.end();
  if (scorers.length === 0)
    throw new RequestError(
      404,
      'this server has no scorer; start it with --judge and a model that judges steps',
    );
  if (name === undefined || !scorer)
    throw new RequestError(
      404,
      `there is no scorer ${JSON.stringify(asked?.slice(0, 80))}; known are ${scorers.map(([each]) => each).join(', ')}`,
      {
        param: 'model',
        code: 'model_not_found',
      },
    );
  if (solutions.length === 0) return { name, scorer, scores: [] };
  const scores = await engine.scoring.score(scorer, solutions, signal).catch((error: unknown) => {
    if (error instanceof DataError) {
      const isOfTurns = error.kind === 'template' && solutions.some(({ turns }) => turns);
      throw new (isOfTurns ? UnreadTurns : RequestError)(400, error.message);
    }
    if (isNotFinite(error)) throw new RequestError(500, error.message);
    // An error that is neither the request's fault nor that of a full queue is the device's.
    if (!(error instanceof RequestError)) engine.fail(error);
    throw error;
  });
  if (scores === undefined) throw new RequestError(503, 'the server is going down', { closes: true });
  return { name, scorer, scores };
}

export async function sendScores(
  { limits }: Engine,
  response: ServerResponse,
  { name, scores }: Scored<SolutionScores | RequestError>,
  body: { readonly data: readonly object[] } & Readonly<Record<string, unknown>>,
): Promise<void> {
  const tokens = scores.reduce((sum, each) => sum + (('tokens' in each && each.tokens) || 0), 0);
  response.setHeader('content-type', 'application/json; charset=utf-8');
  await endWithin(
    response,
    JSON.stringify({
      object: 'list',
      model: name,
      ...body,
      usage: { prompt_tokens: tokens, completion_tokens: 0, total_tokens: tokens },
    }),
    limits.stallSeconds,
  );
}
