import { badTemplate, DataError } from '../files/data-error.js';
import { nearestName } from '../native/nearest.js';
import type { StepLabel, StepRecord, VerdictSample } from '../records/record.js';
import type { Turns } from '../records/turns.js';
import {
  type Segment,
  type SequenceOptions,
  type StepSpan,
  segmentTokenizer,
  type TokenizedSequence,
} from '../tokenizer/segments.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { turnRequest, turnSegments } from './turn-segments.js';

/** Section `prompt` of a run's configuration. */
export interface VerdictPromptOptions {
  /**
   * The text around a judged step, with the placeholders `{problem}` and `{steps}`; text after `{steps}` asks for the
   * verdict. `compact` and `chat` are built in; `auto` (default) is `chat` if the tokenizer has a chat template and
   * `compact` otherwise. The line breaks right after `{steps}` (one, if there is none) end every step. `trl`: the
   * layout in which TRL's PRMTrainer reads solutions, see `trlSegments`. `turns`: conversations by the chat template, and a
   * user who asks about the last turn.
   */
  readonly template?: string | undefined;
  /** Ends every step of the template `trl`. Default a line break. */
  readonly step_separator?: string | undefined;
  /** The words for a right and a wrong step, of one or more tokens. Default `+` and `-`. */
  readonly pos_word?: string | undefined;
  readonly neg_word?: string | undefined;
  /** The word alone (default), or a line with a reason before it. */
  readonly response_format?: 'verdict' | 'rationale_then_verdict' | undefined;
  /** Max tokens of a reason with its line break. Default 64. */
  readonly rationale_tokens?: number | undefined;
}

/** A parsed template. A sequence is opening, problem, afterProblem, steps, tail, and one of the two words. */
export interface VerdictTemplate {
  readonly opening: string;
  readonly afterProblem: string;
  /** Ends every step. */
  readonly stepEnd: string;
  /** Stands between the last step and the verdict. */
  readonly tail: string;
  readonly positive: string;
  readonly negative: string;
  /** The tokens of the two words after the tail; neither is a prefix of the other. */
  readonly positiveIds: readonly number[];
  readonly negativeIds: readonly number[];
  /** Max tokens of the reason before the word, with its line break; 0: the word alone. */
  readonly rationaleTokens: number;
  /** Whether the start token must be added; a chat template has written it already. `bos`: TRL puts it before the problem. */
  readonly specialTokens: 'start' | 'none' | typeof TRL_START;
  /** Asks about turns of conversations, and reads nothing else. */
  readonly turns?: true;
}

/** TRL puts the start token that a tokenizer names before every sequence, whether or not the tokenizer would add it. */
export const TRL_START = 'bos';

/** The template that joins the tokens of pieces, as TRL's PRMTrainer (up to 1.13) does. */
export const TRL_TEMPLATE = 'trl';

/** Templates that are known by name. */
export const VERDICT_TEMPLATES: readonly string[] = ['auto', 'chat', 'compact', TRL_TEMPLATE, 'turns'];
const PROBLEM = '{problem}';
const STEPS = '{steps}';

/** Template for small character models: the problem, one step per line, and a mark that asks for the verdict. */
const COMPACT = `${PROBLEM}\n${STEPS}\n?`;

/** The date that Llama 3's template falls back to by itself. */
const CHAT_DATE = '26 Jul 2024';

const chatRequest = (positive: string, negative: string, reason: boolean): string =>
  'Below are a problem and the first steps of a solution, separated by blank lines. Judge the last step: ' +
  `${reason ? 'check it in one short line, then, on a line of its own, answer' : 'answer'} ` +
  `${positive} if it is correct and ${negative} if it is wrong.\n\n# Problem\n\n${PROBLEM}\n\n# Steps\n\n${STEPS}\n\n`;

/**
 * Prepares the prompt for a tokenizer. A chat template is rendered once, here, so that it is never applied twice.
 *
 * @throws DataError for a template without its placeholders, or if one word's tokens are a prefix of the other's
 */
export function verdictTemplate(options: VerdictPromptOptions, tokenizer: Tokenizer): VerdictTemplate {
  const { template = 'auto', pos_word: positive = '+', neg_word: negative = '-' } = options;
  const unknown = unknownTemplate(template);
  if (unknown !== undefined) throw badTemplate(`prompt.template: ${unknown}`);
  const isTrl = template === TRL_TEMPLATE;
  const ofTurns = template === 'turns';
  const isChat = template === 'chat' || (template === 'auto' && tokenizer.hasChatTemplate);
  const named = template === 'auto' || template === 'compact' ? COMPACT : template;
  const rationaleTokens =
    options.response_format === 'rationale_then_verdict' ? (options.rationale_tokens ?? 64) : 0;
  const text = isChat ? chatText(chatRequest(positive, negative, rationaleTokens > 0), tokenizer) : named;
  const parts = isTrl
    ? { opening: '', afterProblem: '', stepEnd: options.step_separator ?? '\n', tail: '' }
    : ofTurns
      ? {
          opening: '',
          afterProblem: '',
          stepEnd: '',
          tail: turnRequest(tokenizer, { positive, negative }, rationaleTokens > 0),
        }
      : takeApart(text);
  const positiveIds = wordIds(tokenizer, 'pos_word', positive);
  const negativeIds = wordIds(tokenizer, 'neg_word', negative);
  const shorter = Math.min(positiveIds.length, negativeIds.length);
  if (positiveIds.slice(0, shorter).every((id, i) => id === negativeIds[i])) {
    throw badTemplate(
      `prompt.pos_word ${JSON.stringify(positive)} and prompt.neg_word ${JSON.stringify(negative)} become tokens of which ` +
        'one word begins with the other; choose words that differ in their first tokens',
    );
  }
  return {
    ...parts,
    positive,
    negative,
    positiveIds,
    negativeIds,
    rationaleTokens,
    specialTokens: isTrl ? TRL_START : isChat || ofTurns ? 'none' : 'start',
    ...(ofTurns ? { turns: true } : {}),
  };
}

/** Ends a reason, which is one line. */
const REASON_END = '\n';

/** A reason as it is learned and read: one line. */
export function reasonLine(rationale: string): string {
  return rationale.trim().replace(/\s*\n\s*/g, ' ') + REASON_END;
}

/**
 * The segments of one sample: prompt, one per step, and the right verdict, after its reason if it has one; only these are learned.
 *
 * @param trunk problem and steps
 */
export function verdictSegments(
  sample: VerdictSample,
  template: VerdictTemplate,
  trunk: readonly Segment[] = trunkSegments(sample.problem, sample.steps, template),
): readonly Segment[] {
  const step = sample.steps.length - 1;
  return [
    ...trunk,
    { text: template.tail, role: 'prompt', train: false },
    ...(template.rationaleTokens > 0 && sample.rationale !== undefined
      ? [
          {
            text: reasonLine(sample.rationale),
            role: 'verdict',
            step,
            label: sample.label,
            train: true,
          } as const,
        ]
      : []),
    {
      text: sample.label === 1 ? template.positive : template.negative,
      role: 'verdict',
      step,
      label: sample.label,
      train: true,
    },
  ];
}

/**
 * A whole solution with a place for a verdict after each step. The sequence of the verdict on step j is
 * `trunk.ids[0 … at)`, the tail's tokens and a word's tokens: exactly the tokens of that step's sample, so all verdicts
 * of a solution are scored with one computation of the trunk.
 */
export interface SolutionVerdicts {
  /** Problem and steps, without any verdict; nothing in it is learned. */
  readonly trunk: TokenizedSequence;
  readonly verdicts: readonly VerdictPlace[];
  /** Labelled steps without a place, because their sequence would exceed the max length. */
  readonly tooLong: number;
}

export interface VerdictPlace {
  readonly step: number;
  /** Number of trunk tokens before the verdict's tail. */
  readonly at: number;
  readonly label: StepLabel;
  /** Tokens of the reason to learn, with its line break. */
  readonly rationale?: readonly number[];
}

/** The fields of a record that a judge reads. */
export type JudgedRecord = Pick<StepRecord, 'problem' | 'steps' | 'turns' | 'provenance'> & Partial<Turns>;

/** Turns samples and solutions into tokens under one template; encodings of repeated texts are reused. */
export interface VerdictTokenizer {
  readonly template: VerdictTemplate;
  /** Tokens between the last step and the verdict. */
  readonly tailIds: readonly number[];
  sample(sample: VerdictSample): TokenizedSequence;
  /** The tokens of a reason after the tail. Throws DataError where they are more than `rationaleTokens`. */
  reason(rationale: string): readonly number[];
  /** Reads what a model writes. */
  readonly tokenizer: Tokenizer;
  /** A whole solution, and the places in it; see `placeVerdicts`. */
  solution(record: JudgedRecord, options?: PlaceOptions): SolutionVerdicts;
}

export interface PlaceOptions {
  /** `labelled` (default) gives places only after labelled steps, `all` after every step. */
  readonly steps?: 'labelled' | 'all';
  /** Index of the first step that may get a place. Default 0. */
  readonly from?: number;
  /** Max tokens of a verdict's whole sequence, the longer word included; the trunk ends with the last place. */
  readonly maxLength?: number;
}

export function verdictTokenizer(options: VerdictPromptOptions, tokenizer: Tokenizer): VerdictTokenizer {
  const template = verdictTemplate(options, tokenizer);
  const tokenize = segmentTokenizer(tokenizer);
  const sequenceOptions: SequenceOptions = { specialTokens: template.specialTokens };
  // A chat template has written the special tokens already.
  const optionsOf = (record: Pick<StepRecord, 'turns'> | undefined): SequenceOptions =>
    record?.turns ? { specialTokens: 'none' } : sequenceOptions;
  const tailIds = template.tail === '' ? [] : tokenizer.encode(template.tail, { continuation: true });
  return {
    template,
    tailIds,
    tokenizer,
    reason(rationale) {
      const ids = tokenizer.encode(reasonLine(rationale), { continuation: true });
      if (ids.length <= template.rationaleTokens) return ids;
      throw new DataError(
        'row',
        `a reason has ${ids.length} tokens, more than prompt.rationale_tokens (${template.rationaleTokens}): ` +
          `${JSON.stringify(rationale.slice(0, 60))}; raise it`,
      );
    },
    sample(sample) {
      const { conversation } = sample;
      // Up to the end of the judged turn, without what came back.
      const trunk = conversation && turnSegments(tokenizer, conversation, template).slice(0, -1);
      return tokenize(verdictSegments(sample, template, trunk), optionsOf(conversation));
    },
    solution(record, placing) {
      const { problem, steps } = record;
      const segments = record.turns
        ? turnSegments(tokenizer, record, template)
        : trunkSegments(
            problem,
            steps.map(({ text }) => text),
            template,
          );
      return placeVerdicts(
        tokenize(segments, optionsOf(record)),
        steps.map(({ label }) => label),
        { template, tailIds },
        placing,
      );
    },
  };
}

/**
 * The places of the verdicts in a tokenised solution.
 *
 * @param whole problem and steps; may end before the last step if that has no label
 * @param labels of each step of the solution
 */
export function placeVerdicts(
  whole: TokenizedSequence,
  labels: readonly StepLabel[],
  tokenizer: Pick<VerdictTokenizer, 'template' | 'tailIds'>,
  options: PlaceOptions = {},
): SolutionVerdicts {
  const placed = verdictPlaces(whole.steps, labels, tokenizer, options);
  return { trunk: upTo(whole, placed.verdicts.at(-1)?.at ?? 0), ...placed };
}

/** The same without tokens. */
export function verdictPlaces(
  spans: readonly Pick<StepSpan, 'step' | 'end'>[],
  labels: readonly StepLabel[],
  { template, tailIds }: Pick<VerdictTokenizer, 'template' | 'tailIds'>,
  { steps = 'labelled', from = 0, maxLength = Number.POSITIVE_INFINITY }: PlaceOptions = {},
): Pick<SolutionVerdicts, 'verdicts' | 'tooLong'> {
  const longest = maxLength - verdictLength({ template, tailIds });
  const verdicts: VerdictPlace[] = [];
  let tooLong = 0;
  for (const { step, end } of spans) {
    const label = labels[step] ?? null;
    if (label === null && (steps !== 'all' || step < from)) continue;
    if (end <= longest) verdicts.push({ step, at: end, label });
    else tooLong++;
  }
  return { verdicts, tooLong };
}

/** Tokens that a verdict needs behind its step at most: the tail, the reason and the longer word. */
export function verdictLength({ template, tailIds }: Pick<VerdictTokenizer, 'template' | 'tailIds'>): number {
  const { positiveIds, negativeIds, rationaleTokens } = template;
  return tailIds.length + rationaleTokens + Math.max(positiveIds.length, negativeIds.length);
}

function trunkSegments(problem: string, steps: readonly string[], template: VerdictTemplate): Segment[] {
  if (template.turns)
    throw badTemplate(
      'prompt.template "turns" reads conversations, and here is a problem with steps; use another template, or data.source "turns"',
    );
  if (template.specialTokens === TRL_START) return trlSegments(problem, steps, template.stepEnd);
  return [
    { text: template.opening + problem + template.afterProblem, role: 'prompt', train: false },
    ...steps.map(
      (text, step): Segment => ({ text: text + template.stepEnd, role: 'step', step, train: false }),
    ),
  ];
}

/**
 * A solution as TRL's PRMTrainer reads it: problem, steps and the separator after each are tokenised by themselves, with nothing
 * between the problem and the first step, so that no token crosses from a step into its separator. A step is read at the last token
 * of its separator.
 */
export function trlSegments(problem: string, steps: readonly string[], separator: string): Segment[] {
  const piece = { train: false, alone: true } as const;
  return [
    { ...piece, text: problem, role: 'prompt' },
    ...steps.flatMap((text, step): Segment[] => [
      { ...piece, text, role: 'step', step },
      { ...piece, text: separator, role: 'step', step },
    ]),
  ];
}

/** The first `end` tokens of a sequence, at the end of a span. */
export function upTo(sequence: TokenizedSequence, end: number): TokenizedSequence {
  if (end === sequence.ids.length) return sequence;
  return {
    ids: sequence.ids.slice(0, end),
    lossMask: sequence.lossMask.slice(0, end),
    spans: sequence.spans.filter((span) => span.end <= end),
    steps: sequence.steps.filter((step) => step.end <= end),
  };
}

/** The user's turn with the request, its placeholders unfilled, and the opening of the assistant's turn. */
function chatText(request: string, tokenizer: Tokenizer): string {
  const text = tokenizer.applyChatTemplate([{ role: 'user', content: request }], {
    addGenerationPrompt: true,
    // Some templates insert today's date unless given one; a run must not depend on the date.
    variables: { date_string: CHAT_DATE },
  });
  // Some templates trim the message, which removes the line break after the last step.
  const trimmed = text.includes(request) ? request : request.trim();
  if (!text.includes(trimmed)) {
    throw badTemplate(
      "the chat template changes the user's message, so the steps cannot be told from it; set prompt.template to a text",
    );
  }
  return text.replace(trimmed, () => request);
}

/** The error of a template that is a single word, and so meant as a name; undefined where there is none. */
export function unknownTemplate(template: string): string | undefined {
  if (VERDICT_TEMPLATES.includes(template) || !/^[\w-]+$/.test(template)) return undefined;
  const nearest = nearestName(template, VERDICT_TEMPLATES);
  return (
    `there is no template ${JSON.stringify(template)}; ${nearest ? `did you mean ${nearest}? Expected` : 'expected'} ` +
    `${VERDICT_TEMPLATES.join(', ')}, or a text with ${PROBLEM} and ${STEPS}`
  );
}

function takeApart(text: string): Pick<VerdictTemplate, 'opening' | 'afterProblem' | 'stepEnd' | 'tail'> {
  for (const place of [PROBLEM, STEPS]) {
    const found = text.split(place).length - 1;
    if (found !== 1) {
      throw badTemplate(`the prompt template must hold ${place} exactly once; it holds it ${found} times`);
    }
  }
  const problemAt = text.indexOf(PROBLEM);
  const stepsAt = text.indexOf(STEPS);
  if (stepsAt < problemAt) {
    throw badTemplate(`the prompt template has ${STEPS} before ${PROBLEM}; the problem comes first`);
  }
  const after = text.slice(stepsAt + STEPS.length);
  const breaks = /^\n*/.exec(after)?.[0] ?? '';
  return {
    opening: text.slice(0, problemAt),
    afterProblem: text.slice(problemAt + PROBLEM.length, stepsAt),
    stepEnd: breaks === '' ? '\n' : breaks,
    tail: after.slice(breaks.length),
  };
}

function wordIds(tokenizer: Tokenizer, key: 'pos_word' | 'neg_word', word: string): readonly number[] {
  const ids = word === '' ? [] : tokenizer.encode(word, { continuation: true });
  if (ids.length > 0) return ids;
  throw badTemplate(
    `prompt.${key} is ${JSON.stringify(word)}, which has no tokens; choose a word such as + or -`,
  );
}
