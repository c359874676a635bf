/**
 * /score: the steps of solutions by a verdict model, a reward network or whatever scores steps; the turns of conversations; or pairs of
 * texts, as vLLM is asked.
 */
import type { IncomingMessage } from 'node:http';
import { shown } from '../native/shown.js';
import { maybeUnsure, type Solution, type SolutionScores, verdictWords } from '../scoring/scorer.js';
import { unlikeSentence } from '../scoring/unlike-training.js';
import type { Exchange } from './answer.js';
import { readJson } from './body.js';
import type { Engine } from './engine.js';
import { RequestError, UnreadTurns } from './errors.js';
import { isText, RequestFields } from './request-fields.js';
import { type Scored, scoredBy, sendScores } from './scored.js';
import { isConversation, turnSolution } from './turn-solution.js';
import { pairScores } from './whole-scores.js';

const MAX_STEPS = 1024;

/** A solution of several; for one that cannot be read, the reason. */
type Given = Solution | RequestError;

type Ask = (solutions: readonly Solution[]) => Promise<Scored>;

export async function score(
  engine: Engine,
  request: IncomingMessage,
  { response, signal }: Exchange,
): Promise<void> {
  const fields = new RequestFields(await readJson(request, engine.limits.bodyBytes, signal));
  const ask: Ask = (solutions) => scoredBy(engine, fields, solutions, signal);
  const send = (scored: Scored<SolutionScores | RequestError>, answers: readonly object[]) => {
    const data = answers.map((own, i) => ({ ...own, ...unlikeWarnings(scored.scores[i]) }));
    return sendScores(engine, response, scored, { ...describing(scored.scorer), data });
  };
  const pairs = pairScores(engine, fields);
  if (pairs) {
    const scored = await ask(pairs.solutions);
    return send(scored, pairs.answer(scored));
  }
  const several = givenSolutions(engine, fields);
  const one = several ? [] : [givenSolution(fields)()];
  const scored = several ? await scoredEach(ask, several) : await ask(one);
  return send(scored, byStep(scored, several ?? one));
}

const describing = ({ scale, warnings }: Scored['scorer']) => ({ scale, ...(warnings ? { warnings } : {}) });

/** Warns of what is unlike all that the scorer learned from, where it tells. */
const unlikeWarnings = (own?: SolutionScores | RequestError) =>
  own && 'unlike' in own && own.unlike ? { warnings: [unlikeSentence(own.unlike)] } : {};

function byStep(
  { scorer, scores: all }: Scored<SolutionScores | RequestError>,
  given: readonly Given[],
): object[] {
  return all.map((own, index) => {
    const entry = { index, object: 'score' };
    if (own instanceof RequestError)
      return { ...entry, error: own.message, scores: null, turn_rewards: null };
    return {
      ...entry,
      scores: own.scores,
      ...('turns' in (given[index] as Given) ? { turn_rewards: own.scores } : {}),
      reasons: own.reasons,
      ...(maybeUnsure(scorer) ? { verdicts: verdictWords(scorer, own) } : {}),
    };
  });
}

/**
 * Scores the solutions that can be read, and returns the reason in the place of each other one. The scorer refuses all solutions for
 * one that its chat template does not read; then each half has a call of its own.
 */
async function scoredEach(ask: Ask, given: readonly Given[]): Promise<Scored<SolutionScores | RequestError>> {
  try {
    const scored = await ask(given.filter((one): one is Solution => !(one instanceof RequestError)));
    const scores = scored.scores.values();
    return {
      ...scored,
      scores: given.map((one) =>
        one instanceof RequestError ? one : (scores.next().value as SolutionScores),
      ),
    };
  } catch (error) {
    if (!(error instanceof UnreadTurns)) throw error;
    if (given.length === 1) return { ...(await ask([])), scores: [error] };
    const half = given.length >> 1;
    const first = await scoredEach(ask, given.slice(0, half));
    const second = await scoredEach(ask, given.slice(half));
    return { ...first, scores: [...first.scores, ...second.scores] };
  }
}

function givenSolutions(engine: Engine, fields: RequestFields): readonly Given[] | undefined {
  const many = fields.list('solutions', (item): item is unknown => true, 'solutions', engine.limits.samples);
  if (many?.length === 0) fields.fail('solutions', 'a list of at least one solution');
  return many?.map((item, i) => {
    const inner = new RequestFields(item, `solutions[${i}].`);
    const read = givenSolution(inner);
    inner.end();
    try {
      return read();
    } catch (error) {
      if (error instanceof RequestError) return error;
      throw error;
    }
  });
}

/** Reads the fields of a solution. The function that comes back reads what a policy wrote: messages, or the texts of steps. */
function givenSolution(fields: RequestFields): () => Solution {
  if (isConversation(fields)) return turnSolution(fields);
  const problem = fields.text('problem') ?? fields.text('question') ?? fields.requiredText('problem');
  const steps = fields.list('steps', isText, 'texts', MAX_STEPS) ?? [];
  if (steps.length === 0) fields.fail('steps', 'a list of at least one text');
  return () => {
    const blank = steps.findIndex((step) => step.trim() === '');
    if (blank >= 0) fields.fail(`steps[${blank}]`, 'a text that says something', shown(steps[blank]));
    return { problem, steps };
  };
}
