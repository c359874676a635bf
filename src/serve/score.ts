/**
 * /score: the steps of solutions by a verdict model, a reward network or whatever scores steps; the turns of conversations; or pairs of
 * texts, as vLLM is asked.
 */
import type { IncomingMessage } from 'node:http';
import { maybeUnsure, type Solution, type SolutionScores, verdictWords } from '../scoring/scorer.js';
import { unlikeSentence } from '../scoring/unlike-training.js';
import type { Exchange } from './answer.js';
import { readJson } from './body.js';
import type { Engine } from './engine.js';
import { isText, RequestFields } from './request-fields.js';
import { type Scored, scoredBy, sendScores } from './scored.js';
import { isConversation, turnSolution } from './turn-solution.js';
import { pairScores } from './whole-scores.js';

const MAX_STEPS = 1024;

export async function score(
  engine: Engine,
  request: IncomingMessage,
  { response, signal }: Exchange,
): Promise<void> {
  const fields = new RequestFields(await readJson(request, engine.limits.bodyBytes, signal));
  const pairs = pairScores(engine, fields);
  const solutions = pairs?.solutions ?? givenSolutions(engine, fields);
  const scored = await scoredBy(engine, fields, solutions, signal);
  const data = (pairs ? pairs.answer(scored) : byStep(scored, solutions)).map((own, i) => ({
    ...own,
    ...unlikeWarnings(scored.scores[i]),
  }));
  await sendScores(engine, response, scored, { ...describing(scored.scorer), data });
}

const describing = ({ scale, warnings }: Scored['scorer']) => ({ scale, ...(warnings ? { warnings } : {}) });

/** Warns of what is unlike all that the scorer learned from, where it tells. */
const unlikeWarnings = ({ unlike }: Pick<SolutionScores, 'unlike'> = {}) =>
  unlike ? { warnings: [unlikeSentence(unlike)] } : {};

function byStep({ scorer, scores: all }: Scored, solutions: readonly Solution[]): object[] {
  return all.map((own, index) => ({
    index,
    object: 'score',
    scores: own.scores,
    ...(solutions[index]?.turns ? { turn_rewards: own.scores } : {}),
    reasons: own.reasons,
    ...(maybeUnsure(scorer) ? { verdicts: verdictWords(scorer, own) } : {}),
  }));
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
  if (isConversation(fields)) return turnSolution(engine, fields);
  const problem = fields.text('problem') ?? fields.text('question') ?? fields.requiredText('problem');
  const steps = fields.list('steps', isText, 'texts', MAX_STEPS) ?? [];
  if (steps.length === 0) fields.fail('steps', 'a list of at least one text');
  engine.checkLength(problem + steps.join('\n'));
  return { problem, steps };
}
