/** Word problems from a seed. */
import { badOption } from '../../files/data-error.js';
import { PhiloxStream } from '../../random/philox.js';
import type { Part } from '../split.js';
import type { TemplateChoice } from './choices.js';
import { Draft, type Sentence, type Story, UNUSABLE } from './draft.js';
import { factPart } from './facts.js';
import { LEVELS, type Level } from './levels.js';
import { answerFrom, factOf, type WordProblem } from './problem.js';
import { type CoarseQuestion, coarseQuestion, plainQuestion } from './questions.js';
import { HELD_OUT_TEMPLATES, TEMPLATES, type Template } from './templates/table.js';

export interface WordProblemOptions {
  readonly seed: number;
  /** Number of problems. */
  readonly samples: number;
  /** Index of the first: problem i is the same whatever `first` and `samples` are. Default 0. */
  readonly first?: number;
  /** Relative frequency of each level, from level 1 on. Default [1, 1, 1]. */
  readonly levels?: readonly number[];
  /**
   * The part whose facts the problems hold: a test problem has at least one fact that no training problem has. Default
   * `train`.
   */
  readonly part?: Part;
  /** The templates: those that training sees, those that it never sees, or `all`. Default `seen`. */
  readonly templates?: TemplateChoice;
}

const WORDINGS = 3;
const COARSE: readonly CoarseQuestion[] = ['parity', 'limit', 'remainder'];

/** Domain of the random stream of a problem. */
const DOMAIN = 0x776f7264;

/** Drafts of one template before another is taken, and templates before something must be wrong. */
const DRAFTS = 400;
const TEMPLATES_TRIED = 200;

/** The problems of {@link WordProblemOptions}, lazily and in order. */
export function* wordProblems(options: WordProblemOptions): Generator<WordProblem> {
  const { seed, samples, first = 0, levels = [1, 1, 1], part = 'train', templates = 'seen' } = options;
  for (const [key, value] of Object.entries({ seed, samples, first }))
    if (!Number.isSafeInteger(value) || value < 0)
      throw badOption(`wordProblems: ${key} is ${value}; expected a whole number of at least 0`);
  checkLevels(levels);
  const draft = drafter({ levels, templates });
  for (let i = 0; i < samples; i++) yield draft(new PhiloxStream(seed, DOMAIN, first + i), part);
}

/** @throws DataError unless there is a share for at most every level, and one above 0 */
export function checkLevels(levels: readonly number[]): void {
  const isShare = (share: number) => Number.isFinite(share) && share >= 0;
  if (levels.length <= LEVELS.length && levels.every(isShare) && levels.some((share) => share > 0)) return;
  throw badOption(
    `the shares of the levels are [${levels.join(', ')}]; expected 1 to ${LEVELS.length} numbers of at least 0, one of them above 0`,
  );
}

/** Drafts the next problem of a part that `isWanted`. The filter does not make a template rarer. */
export type Drafter = (
  draw: PhiloxStream,
  part: Part,
  isWanted?: (problem: WordProblem) => boolean,
) => WordProblem;

export function drafter({
  levels,
  templates,
}: Required<Pick<WordProblemOptions, 'levels' | 'templates'>>): Drafter {
  const named = Object.entries({
    ...(templates === 'held_out' ? {} : TEMPLATES),
    ...(templates === 'seen' ? {} : HELD_OUT_TEMPLATES),
  });
  return (draw, part, isWanted = () => true) => {
    const number = weighted(draw, levels);
    const level = LEVELS[number] as Level;
    for (let i = 0; i < TEMPLATES_TRIED; i++) {
      const [template, tell] = draw.pick(named);
      const outline = drawOutline(draw, level, part);
      for (let j = 0; j < DRAFTS; j++) {
        const made = attempt(draw, outline, tell);
        if (made === undefined) continue;
        const problem = { ...made, level: number + 1, template, part };
        if (isWanted(problem)) return problem;
      }
    }
    throw new Error(`no problem of level ${number + 1} came out of ${TEMPLATES_TRIED} templates`);
  };
}

/** Choices made before the numbers, so that problems whose numbers rarely work out are not rarer. */
interface Outline {
  readonly level: Level;
  readonly part: Part;
  readonly wording: number;
  readonly coarse: CoarseQuestion | undefined;
  readonly operations: number;
}

function drawOutline(draw: PhiloxStream, level: Level, part: Part): Outline {
  const wording = draw.below(WORDINGS);
  const coarse = draw.uniform() < level.coarse ? draw.pick(COARSE) : undefined;
  const [least, most] = level.operations;
  const operations = least + draw.below(most - least + 1);
  return { level, part, wording, coarse, operations };
}

type Made = Pick<WordProblem, 'problem' | 'answer' | 'wording' | 'plan' | 'ending'>;

function attempt(draw: PhiloxStream, outline: Outline, tell: Template): Made | undefined {
  const { level, part, wording, coarse } = outline;
  // The remainder is an operation too.
  const operations = outline.operations - (coarse === 'remainder' ? 1 : 0);
  if (operations < 1) return undefined;
  const draft = new Draft(draw, level, part, operations, wording);
  try {
    const story = tell(draft);
    if (draft.plan.length !== operations) return undefined;
    const { text, ending } =
      coarse && story.noun ? coarseQuestion(draft, story.noun, coarse) : plainQuestion(draft, story);
    if (coarse === 'remainder' && ending.kind !== 'remainder') return undefined;
    const { plan } = draft;
    if (part !== 'train' && !plan.some((step) => factPart(factOf(step)) === part)) return undefined;
    const problem = [...told(draft, story).map((sentence) => sentence.text), text].join(' ');
    return {
      problem,
      answer: answerFrom(
        ending,
        plan.map(({ result }) => result),
      ),
      wording,
      plan,
      ending,
    };
  } catch (error) {
    if (error === UNUSABLE) return undefined;
    throw error;
  }
}

/** The sentences in their final order: some moved, and some added that do not bear on the question. */
function told(d: Draft, story: Story): Sentence[] {
  const sentences = [...story.sentences];
  const movable = sentences.flatMap(({ movable }, i) => (movable ? [i] : []));
  if (d.level.shuffled && movable.length > 1 && d.draw.below(2) === 0) {
    const [i, j] = [d.draw.pick(movable), d.draw.pick(movable)];
    [sentences[i], sentences[j]] = [sentences[j] as Sentence, sentences[i] as Sentence];
  }
  for (let n = d.draw.below(d.level.distractors + 1); n > 0; n--) {
    const count = d.between([2, 99]);
    const text = d.say(
      `${d.person()} has ${count} ${d.thing()}.`,
      `There are ${count} ${d.thing()} in a hall.`,
      `${d.person()} is ${count} years old.`,
    );
    sentences.splice(1 + d.draw.below(sentences.length), 0, { text });
  }
  return sentences;
}

function weighted(draw: PhiloxStream, shares: readonly number[]): number {
  let left = draw.uniform() * shares.reduce((sum, share) => sum + share, 0);
  for (const [i, share] of shares.entries()) {
    left -= share;
    if (left < 0) return i;
  }
  return shares.findLastIndex((share) => share > 0);
}
