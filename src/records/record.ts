import type { FilePosition } from '../files/data-error.js';
import { folded } from './same-text.js';

/** 1 = right, 0 = wrong, null = unlabelled. */
export type StepLabel = 1 | 0 | null;

/**
 * The kind of a step. `wrong`, `reflection` and `improvement` belong to self-correction data: a step kept in the context
 * but not learned, the remark on its error, and the corrected step.
 */
export const STEP_KINDS = ['normal', 'wrong', 'reflection', 'improvement'] as const;
export type StepKind = (typeof STEP_KINDS)[number];

/** One step of a solution. */
export interface Step {
  /** The step as in the source, without the line break that ends it. */
  readonly text: string;
  readonly label: StepLabel;
  /** The source calls the step neither right nor wrong; `label` is what that counts as. */
  readonly neutral?: true;
  /** A soft label or a judge's score, if the source has one. */
  readonly score?: number;
  /** Reason why the step is right or wrong, in one line, which a model may write before its verdict. */
  readonly rationale?: string;
  /** Kind of the step's error, where the source has it; metrics are broken down by it. */
  readonly error?: string;
  /**
   * Further fields of the message for the template, such as `reasoning_content`, for a step that is a reply in a chat.
   */
  readonly message?: MessageExtras;
  /**
   * Messages that came back after it, where steps are turns of a conversation: results of tools and words of the user, up to the next
   * turn. Context that no loss learns.
   */
  readonly results?: readonly Message[];
  readonly kind: StepKind;
}

/** The source of a record. */
export interface Provenance extends FilePosition {
  /** The source's own identifier of the row. */
  readonly id?: string;
}

/** Fields that a message may have besides role and content; all others describe the data and are not for the model. */
export const MESSAGE_EXTRAS = [
  'reasoning_content',
  'reasoning',
  'thinking',
  'tool_calls',
  'tool_call_id',
  'is_error',
  'name',
  'parts',
] as const;
/**
 * `is_error` says of a result of a tool whether its call failed; absent where its content alone may say so. `parts` are the
 * texts of a content that has several; `content` has them in lines of their own.
 */
export type MessageExtras = { readonly [Key in (typeof MESSAGE_EXTRAS)[number]]?: unknown };

/** One turn of a conversation. */
export type Message = {
  readonly role: string;
  /** Text; empty only together with `tool_calls`, or as the result of a tool. */
  readonly content: string;
} & MessageExtras;

/** Inputs of a prompt's chat template other than messages. */
export interface TemplateInputs {
  /** Functions that the model may call, as JSON schemas. */
  readonly tools?: readonly unknown[];
  /** Further variables of the template, such as `enable_thinking`. */
  readonly chat_template_kwargs?: Readonly<Record<string, unknown>>;
}

/** The common record of all data sources. Keys are snake_case because records are also a file format. */
export interface StepRecord extends TemplateInputs {
  readonly problem: string;
  /**
   * Text before the solution, where the source has it word for word: a text that the solution continues with nothing
   * between, or the turns of a chat. Empty: nothing precedes it, and the solution is a text from its first token on.
   * Absent: the method asks with its own words.
   */
  readonly prompt?: string | readonly Message[];
  readonly gold_solution?: string;
  readonly gold_answer?: string;
  readonly steps: readonly Step[];
  /** Each step is a turn of the assistant in the conversation that `prompt`, a list of messages, begins. */
  readonly turns?: true;
  /** 1 = the final answer is right (or the answer is desirable), 0 = it is not; absent if the source does not say. */
  readonly outcome?: 1 | 0;
  /** The steps of an answer to the same prompt that is worse than `steps`. */
  readonly rejected?: readonly Step[];
  /**
   * The first `context_steps` steps are only context: another record of the same solution has their labels, so here they
   * are null and not reported as unlabelled. Absent means 0.
   */
  readonly context_steps?: number;
  /** Whether one of those steps is wrong by the label that it has there. */
  readonly context_wrong?: true;
  /** The group by which metrics are broken down: the value of the column that `data.group_by` names. */
  readonly group?: string;
  /** The problem of which this one is a variant, as those of MetaMathQA are; all variants are in one part of a split. */
  readonly original?: string;
  readonly provenance?: Provenance;
}

/** One verdict to learn: is the last of `steps` right, given the problem and the steps before it? */
export interface VerdictSample {
  readonly problem: string;
  readonly steps: readonly string[];
  readonly label: 1 | 0;
  /** Reason for the judged step's label. */
  readonly rationale?: string;
  /** The record up to the judged step, where steps are turns of a conversation. */
  readonly conversation?: StepRecord;
  /** Samples of one group never fall on both sides of a split: the normalised problem text. */
  readonly group: string;
  readonly provenance?: Provenance;
}

/**
 * The form in which two problem texts are too alike for training and test: compatibility-normalised, lower case, runs of white space as
 * one space. `problemText` is the form of one problem.
 */
export function normalizeProblem(problem: string): string {
  // A space that stands alone is not replaced by itself.
  return folded(problem)
    .replace(/\s{2,}|[^\S ]/gu, ' ')
    .trim();
}

/**
 * Every labelled step of a record as a sample, in order. `max_steps` limits the steps of the solution; unlabelled steps
 * stay in the prefix of later ones.
 */
export function* verdictSamples(
  record: StepRecord,
  options: { readonly max_steps?: number } = {},
): Generator<VerdictSample> {
  const group = normalizeProblem(record.problem);
  const texts = record.steps.map((step) => step.text);
  const end = Math.min(texts.length, options.max_steps ?? texts.length);
  for (let j = 0; j < end; j++) {
    const { label = null, rationale } = record.steps[j] ?? {};
    if (label === null) continue;
    const sample: VerdictSample = {
      problem: record.problem,
      steps: texts.slice(0, j + 1),
      label,
      ...(rationale === undefined ? {} : { rationale }),
      ...(record.turns ? { conversation: { ...record, steps: record.steps.slice(0, j + 1) } } : {}),
      group,
    };
    yield record.provenance === undefined ? sample : { ...sample, provenance: record.provenance };
  }
}
