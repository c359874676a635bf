/**
 * Solutions with self-corrections as text: how their steps are written, which parts are learned, and how text is read
 * back.
 */
import { badOption, badTemplate } from '../../files/data-error.js';
import { splitOutside } from '../../records/mathematics.js';
import type { StepKind, StepRecord } from '../../records/record.js';

/** Section `format` of a run's configuration. */
export interface CorrectionFormat {
  /** Ends every step. Default a line break. */
  readonly separator?: string;
  /** A reflection as it stands in the text, with the placeholder `{text}`. */
  readonly reflection?: string;
  /** An improvement as it stands in the text, with the placeholder `{text}`. */
  readonly improvement?: string;
}

export const DEFAULT_FORMAT: Required<CorrectionFormat> = {
  separator: '\n',
  reflection: 'Wait, the last step is not right: {text}',
  improvement: 'Corrected: {text}',
};

/**
 * Weights of the parts of a solution in the loss. The problem is never learned. Defaults are those of our source: a
 * wrong step stays in the context, so that the model learns to react to it, but is no target.
 */
export interface LossMask {
  /**
   * `none`: all steps are learned, also wrong ones; `wrong_step` (default): all but the wrong ones; `wrong_step_and_prompt`: nor
   * the right steps before the first wrong one, after which it was sampled.
   */
  readonly mask?: 'none' | 'wrong_step' | 'wrong_step_and_prompt' | undefined;
  /** Weight of the masked tokens of a wrong step, from 0 to 1. Default 0. */
  readonly wrong_step_weight?: number | undefined;
  /** Whether the separator that ends a wrong step is masked with it. Default true. */
  readonly mask_separator?: boolean | undefined;
  /**
   * A regular expression for what announces a step, such as `Step \d+: ?`. At the beginning of a wrong step it is learned: the
   * right step begins with it too. Default: there is none.
   */
  readonly header?: string | undefined;
}

/** A piece of a solution's text, which is tokenised on its own. */
export interface WeighedText {
  readonly text: string;
  /** Index of the step in the record. */
  readonly step: number;
  readonly kind: StepKind;
  /** Weight of each of its tokens in the loss, from 0 to 1. */
  readonly weight: number;
}

/**
 * The steps as pieces of text with their weights. A piece ends where the weight changes, so that no token straddles the edge of a
 * mask; a reflection therefore begins with a token of its own, which is learned: it is the one that starts a correction.
 *
 * @throws DataError for a format without its placeholder, a separator that is empty, or a `header` that is no regular expression
 */
export function correctionTexts(
  { steps }: Pick<StepRecord, 'steps'>,
  format: CorrectionFormat = {},
  { mask = 'wrong_step', wrong_step_weight = 0, mask_separator = true, header }: LossMask = {},
): readonly WeighedText[] {
  const { separator, write } = correctionWriter(format);
  const announcing = header === undefined ? undefined : headerPattern(header);
  const firstWrong = steps.findIndex(({ kind }) => kind === 'wrong');
  const masked = mask === 'none' ? 1 : wrong_step_weight;
  return steps.flatMap(({ kind, text }, step): WeighedText[] => {
    const written = write(kind, text);
    if (kind !== 'wrong' || masked === 1) {
      const isBefore = mask === 'wrong_step_and_prompt' && step < firstWrong;
      return [{ text: `${written}${separator}`, step, kind, weight: isBefore ? 0 : 1 }];
    }
    const announced = announcing?.exec(written)?.[0] ?? '';
    const rest = written.slice(announced.length);
    const pieces = [
      { text: announced, weight: 1 },
      { text: mask_separator ? `${rest}${separator}` : rest, weight: masked },
      { text: mask_separator ? '' : separator, weight: 1 },
    ];
    return pieces.flatMap((piece) => (piece.text === '' ? [] : [{ ...piece, step, kind }]));
  });
}

export interface CorrectionWriter {
  readonly separator: string;
  write(kind: StepKind, text: string): string;
  /**
   * The steps of a text, which is never cut inside a formula, or of its pieces, each with its kind; the step that a reflection follows
   * is `wrong`.
   */
  read(text: string | readonly string[]): readonly WrittenStep[];
}

/** A step of a text. `text` is without the format's words around it. */
export interface WrittenStep {
  readonly kind: StepKind;
  readonly text: string;
}

const PLACEHOLDER = '{text}';

/** @throws DataError for a format without its placeholder, or a separator that is empty */
export function correctionWriter(format: CorrectionFormat = {}): CorrectionWriter {
  const { separator, reflection, improvement } = { ...DEFAULT_FORMAT, ...format };
  if (separator === '') throw badTemplate('format.separator is empty; steps need something between them');
  const around = {
    reflection: frame('reflection', reflection),
    improvement: frame('improvement', improvement),
  };
  if (!around.reflection.isMarked)
    throw badTemplate(
      `format.reflection is ${JSON.stringify(reflection)} alone; a correction is recognised by the words around it`,
    );
  return {
    separator,
    write: (kind, text) => (kind === 'reflection' || kind === 'improvement' ? around[kind].put(text) : text),
    read(whole) {
      const steps: { kind: StepKind; text: string }[] = [];
      for (const text of typeof whole === 'string' ? splitOutside(whole, separator) : whole) {
        if (text.trim() === '') continue;
        const last = steps.at(-1);
        const reflected = last && last.kind !== 'reflection' ? around.reflection.take(text) : undefined;
        // Without a reflection, only its own words distinguish an improvement from any other step.
        const mayImprove =
          last?.kind === 'reflection' || (last?.kind === 'normal' && around.improvement.isMarked);
        const improved = mayImprove ? around.improvement.take(text) : undefined;
        if (last && reflected !== undefined) {
          last.kind = 'wrong';
          steps.push({ kind: 'reflection', text: reflected });
        } else if (last && improved !== undefined) {
          if (last.kind === 'normal') last.kind = 'wrong';
          steps.push({ kind: 'improvement', text: improved });
        } else steps.push({ kind: 'normal', text });
      }
      return steps;
    },
  };
}

function frame(key: string, template: string) {
  const [before, after, ...more] = template.split(PLACEHOLDER);
  if (before === undefined || after === undefined || more.length > 0)
    throw badTemplate(
      `format.${key} must have ${PLACEHOLDER} exactly once; found ${JSON.stringify(template)}`,
    );
  return {
    isMarked: before.length + after.length > 0,
    put: (text: string) => `${before}${text}${after}`,
    take: (text: string) =>
      text.length >= before.length + after.length && text.startsWith(before) && text.endsWith(after)
        ? text.slice(before.length, text.length - after.length)
        : undefined,
  };
}

function headerPattern(header: string): RegExp {
  try {
    return new RegExp(`^(?:${header})`, 'u');
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw badOption(`s3c.header is no regular expression: ${reason}`, { cause: error });
  }
}
