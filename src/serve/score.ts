/** /score: the steps of solutions by a verdict model, a reward network or whatever scores steps. */
import type { IncomingMessage } from 'node:http';
import { DataError } from '../files/data-error.js';
import type { Solution } from '../scoring/scorer.js';
import type { Exchange } from './answer.js';
import { readJson } from './body.js';
import type { Engine } from './engine.js';
import { RequestError } from './errors.js';
import { endWithin } from './event-stream.js';
import { isText, RequestFields } from './request-fields.js';

const MAX_STEPS = 1024;

export async function score(
  engine: Engine,
  request: IncomingMessage,
  { response, signal }: Exchange,
): Promise<void> {
  const fields = new RequestFields(await readJson(request, engine.limits.bodyBytes, signal));
  const solutions = givenSolutions(engine, fields);
  const scorers = Object.entries(engine.served.scorers ?? {});
  const name = fields.text('model') ?? scorers[0]?.[0];
  fields.end();
  const [, scorer] = scorers.find(([each]) => each === name) ?? [];
  if (scorers.length === 0)
    throw new RequestError(
      404,
      'this server has no scorer; start it with --judge and a model that judges steps',
    );
  if (!scorer)
    throw new RequestError(
      404,
      `there is no scorer ${JSON.stringify(name?.slice(0, 80))}; known are ${scorers.map(([each]) => each).join(', ')}`,
      {
        param: 'model',
        code: 'model_not_found',
      },
    );
  const scored = await engine.scoring
    .run(async () => (signal.aborted ? undefined : scorer.score(solutions, { signal })))
    .catch((error: unknown) => {
      // What is neither the request's fault nor that of a full queue is the device's.
      if (!(error instanceof DataError) && !(error instanceof RequestError)) engine.fail(error);
      throw error;
    });
  if (scored === undefined) throw new RequestError(503, 'the server is going down', { closes: true });
  const tokens = scored.reduce((sum, each) => sum + (each.tokens ?? 0), 0);
  response.setHeader('content-type', 'application/json; charset=utf-8');
  await endWithin(
    response,
    JSON.stringify({
      object: 'list',
      model: name,
      scale: scorer.scale,
      data: scored.map(({ scores, checked }, index) => ({ index, object: 'score', scores, checked })),
      usage: { prompt_tokens: tokens, completion_tokens: 0, total_tokens: tokens },
    }),
    engine.limits.stallSeconds,
  );
}

function givenSolutions(engine: Engine, fields: RequestFields): readonly Solution[] {
  const many = fields.list('solutions', (item): item is unknown => true, 'solutions', engine.limits.samples);
  if (many?.length === 0) fields.fail('solutions', 'a list of at least one solution');
  return many
    ? many.map((item, i) => {
        const inner = new RequestFields(item, `solutions[${i}].`);
        const solution = givenSolution(engine, inner);
        inner.end();
        return solution;
      })
    : [givenSolution(engine, fields)];
}

function givenSolution(engine: Engine, fields: RequestFields): Solution {
  const problem = fields.text('problem') ?? fields.text('question') ?? fields.requiredText('problem');
  const steps = fields.list('steps', isText, 'texts', MAX_STEPS) ?? [];
  if (steps.length === 0) fields.fail('steps', 'a list of at least one text');
  engine.checkLength(problem + steps.join('\n'));
  return { problem, steps };
}
