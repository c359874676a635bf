/**
 * Scores in vLLM's forms: /pooling (a list for each step), /classify (probabilities of wrong and right) and pairs of
 * /score (one number for a text). The first text is a problem, the second its solution, whose steps are lines or end
 * with `<extra_0>`.
 */

import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { aggregated } from '../eval/solving/aggregation.js';
import { exp } from '../native/elementary.js';
import { stepsBy } from '../records/segment.js';
import type { Scorer, Solution, SolutionScores } from '../scoring/scorer.js';
import type { Exchange } from './answer.js';
import { readJson } from './body.js';
import { chatMessage } from './chat-message.js';
import type { Engine } from './engine.js';
import { RequestError } from './errors.js';
import { isText, RequestFields } from './request-fields.js';
import { askedScorer, type Scored, scoredBy, sendScores } from './scored.js';

/** Ends a step in the texts of Qwen's reward models. */
const SEPARATOR = '<extra_0>';

const MAX_MESSAGES = 64;

/** Names of the two sides of a pair. */
const PAIRS = [
  ['text_1', 'text_2'],
  ['queries', 'documents'],
  ['queries', 'items'],
  ['data_1', 'data_2'],
] as const;

export async function pooling(engine: Engine, request: IncomingMessage, exchange: Exchange): Promise<void> {
  await answerChat(engine, request, exchange, 'pool', (own, scorer, index) => ({
    index,
    object: 'pooling',
    data: known(own, scorer, index).map((score) =>
      scorer.scale === 'probability' ? [1 - score, score] : [score],
    ),
  }));
}

export async function classify(engine: Engine, request: IncomingMessage, exchange: Exchange): Promise<void> {
  await answerChat(engine, request, exchange, 'classify', (own, scorer, index) => {
    const score = ofWhole(own, scorer, index);
    if (scorer.scale === 'reward')
      throw new RequestError(
        400,
        `${scorer.name} gives rewards without bounds, which are no probabilities; ask /score or /pooling`,
      );
    const right = scorer.scale === 'log_odds' ? 1 / (1 + exp(-score)) : score;
    return {
      index,
      label: score >= scorer.threshold ? 'right' : 'wrong',
      probs: [1 - right, right],
      num_classes: 2,
    };
  });
}

/** Pairs of texts, where a request to /score has them: one problem for all solutions, or as many as there are solutions. */
export function pairScores(
  engine: Engine,
  fields: RequestFields,
): { readonly solutions: readonly Solution[]; answer(scored: Scored): object[] } | undefined {
  const [one, other] = PAIRS.find(([first, second]) => fields.has(first) && fields.has(second)) ?? [];
  if (!one || !other) return undefined;
  ignoreNeutral(fields);
  const texts = (name: string) => {
    const value = fields.value(name);
    const list =
      typeof value === 'string' ? [value] : fields.list(name, isText, 'texts', engine.limits.samples);
    return list?.length ? list : fields.fail(name, 'a text or a list of texts');
  };
  const [problems, solutions] = [texts(one), texts(other)];
  if (problems.length !== 1 && problems.length !== solutions.length)
    fields.fail(
      one,
      `one text, or one for each of the ${solutions.length} of ${other}`,
      `${problems.length}`,
    );
  return {
    solutions: solutions.map((text, i) =>
      solutionOf(engine, fields, problems[problems.length === 1 ? 0 : i] as string, text, () =>
        fields.fail(`${other}[${i}]`, 'a text with at least one step'),
      ),
    ),
    answer: ({ scorer, scores }) =>
      scores.map((own, index) => ({ index, object: 'score', score: ofWhole(own, scorer, index) })),
  };
}

async function answerChat(
  engine: Engine,
  request: IncomingMessage,
  { response, signal }: Exchange,
  kind: string,
  datum: (own: SolutionScores, scorer: Scorer, index: number) => object,
): Promise<void> {
  const fields = new RequestFields(await readJson(request, engine.limits.bodyBytes, signal));
  const scored = await scoredBy(engine, fields, [askedSolution(engine, fields)], signal);
  await sendScores(engine, response, scored, {
    id: `${kind}-${randomUUID()}`,
    created: Math.floor(Date.now() / 1000),
    data: scored.scores.map((own, index) => datum(own, scored.scorer, index)),
  });
}

function askedSolution(engine: Engine, fields: RequestFields): Solution {
  if (fields.has('input'))
    fields.fail(
      'input',
      "no rendered text, of which this server would have to guess problem and steps: send messages, a user's problem and an " +
        "assistant's solution",
      'one',
    );
  ignoreNeutral(fields);
  const given = fields.list('messages', (item): item is unknown => true, 'messages', MAX_MESSAGES) ?? [];
  const messages = given.map((message, i) => chatMessage(new RequestFields(message, `messages[${i}].`)));
  const [problem, solution] = messages.slice(-2);
  if (problem?.role !== 'user' || solution?.role !== 'assistant')
    return fields.fail('messages', "a user's problem and an assistant's solution at the end");
  // A system message is the judge's own; turns of a conversation would be lost.
  const turn = messages.slice(0, -2).findIndex(({ role }) => role !== 'system' && role !== 'developer');
  if (turn >= 0)
    fields.refuse(
      `messages[${turn}]`,
      'expected one problem and one solution, and system messages before them: earlier turns are not read; send a conversation to /score',
    );
  return solutionOf(engine, fields, String(problem.content), String(solution.content), () =>
    fields.fail(`messages[${messages.length - 1}].content`, 'a text with at least one step'),
  );
}

/** Keys of vLLM's requests that leave these answers as they are. */
function ignoreNeutral(fields: RequestFields): void {
  fields.ignore('user', 'request_id', 'priority', 'add_generation_prompt', 'add_special_tokens');
  fields.neutral('encoding_format', 'float');
  fields.neutral('use_activation', true);
  fields.neutral('task', 'token_classify', 'classify');
  for (const name of ['truncate_prompt_tokens', 'dimensions', 'chat_template']) fields.neutral(name);
}

/** The steps of a text: what `<extra_0>` ends, or those of the rule that the scorer was trained by; else paragraphs or lines. */
function solutionOf(
  engine: Engine,
  fields: RequestFields,
  problem: string,
  text: string,
  refuse: () => never,
): Solution {
  const steps = text.includes(SEPARATOR)
    ? text
        .split(SEPARATOR)
        .map((step) => step.trim())
        .filter((step) => step !== '')
    : stepsBy(text, askedScorer(engine, fields).scorer?.segmentation);
  return steps.length === 0 ? refuse() : { problem, steps };
}

/** The outcome where the scorer gives one, else the lowest of probabilities and log-odds of steps, or the last of rewards. */
function ofWhole(own: SolutionScores, scorer: Scorer, index: number): number {
  if (typeof own.outcome === 'number') return own.outcome;
  return aggregated(known(own, scorer, index), scorer.scale === 'reward' ? 'last' : 'min') as number;
}

/**
 * The scores of all steps; for a scorer of outcomes, that of the last step.
 *
 * @throws RequestError for a step that was not scored, since these forms have no null
 */
function known({ scores }: SolutionScores, { unit }: Scorer, index: number): readonly number[] {
  return (unit === 'outcome' ? scores.slice(-1) : scores).map((score, step) => {
    if (score !== null) return score;
    throw new RequestError(
      400,
      `step ${step + 1} of solution ${index} has no score: it is longer than the scorer reads, or says nothing that it judges; ask ` +
        '/score with problem and steps, which has null there',
    );
  });
}
