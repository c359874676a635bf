// `steptrain data preview`: single samples as the model reads them, token by token.
import type { Part } from '../../data/split.js';
import { methodOf, type RunConfig } from '../../methods/table.js';
import { plural } from '../../native/shown.js';
import { dividedRecords } from '../../run/parts.js';
import { configuredTokenizer } from '../../run/tokenizer.js';
import { decodeSpan, type SegmentSpan, type TokenizedSequence } from '../../tokenizer/segments.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';

export interface PreviewOptions {
  readonly part: Part;
  /** Labelled steps to show. */
  readonly samples: number;
  /** Columns of the terminal. */
  readonly width: number;
}

/** The first samples of a part: for each span its text, ids and loss mask, in lines that fit. */
export async function dataPreview(
  config: RunConfig,
  { part, samples: limit, width }: PreviewOptions,
): Promise<string> {
  const tokenizer = await configuredTokenizer(config.model);
  const method = await methodOf(config).load();
  const samplesOf = method.preview(config, tokenizer);
  const shown: string[] = tokenizer.reversesDigits
    ? ['The tokenizer stores the last digit of a number first: 12 is shown as 2 1.']
    : [];
  const notes = shown.length;
  let records = 0;
  for await (const { part: found, record } of dividedRecords(config.data)) {
    if (found !== part) continue;
    records++;
    for (const { title, sequence, labels } of samplesOf(record, part)) {
      if (shown.length === limit + notes) return shown.join('\n\n');
      const { length } = sequence.ids;
      const learned = labels
        ? `${labels.filter((label) => label !== undefined).length} with a label`
        : `${sequence.lossMask.reduce((sum, mask) => sum + mask, 0)} learned`;
      const tooLong =
        length > config.data.max_length ? `, longer than data.max_length ${config.data.max_length}` : '';
      const head = `${part} ${shown.length + 1 - notes}: ${title}, ${length} tokens, ${learned}${tooLong}`;
      shown.push([head, ...formatSequence(sequence, tokenizer, width, labels)].join('\n'));
    }
  }
  if (shown.length > notes) return shown.join('\n\n');
  return records === 0
    ? `the ${part} part has no records`
    : `the ${part} part has ${plural(records, 'record')}, and in none of them anything that method: ${config.method} learns, such as a step with a label; steptrain data stats counts the labels`;
}

/**
 * Each span under a title, its tokens in columns: text above, id in the middle, and below learned (1) or not (0), or the labels
 * that the tokens have.
 */
export function formatSequence(
  sequence: TokenizedSequence,
  tokenizer: Tokenizer,
  width: number,
  labels?: readonly (string | undefined)[],
): string[] {
  const below = labels
    ? { title: '  label', cells: labels.map((label) => label ?? '.') }
    : { title: 'learned', cells: sequence.lossMask };
  const lines: string[] = [];
  for (const span of sequence.spans) {
    if (span.start === span.end) continue;
    lines.push(`  ${spanTitle(span)}  [${span.start}, ${span.end})`);
    lines.push(...tokenColumns(sequence.ids, span, below, tokenizer, width));
  }
  return lines;
}

function spanTitle({ role, step }: SegmentSpan): string {
  return step === undefined ? role : `${role} ${step + 1}`;
}

function tokenColumns(
  ids: Int32Array,
  { start, end }: SegmentSpan,
  below: { readonly title: string; readonly cells: ArrayLike<string | number> },
  tokenizer: Tokenizer,
  width: number,
): string[] {
  const lines: string[] = [];
  const titles: readonly string[] = ['   text', '    ids', below.title];
  let rows = titles;
  for (let at = start; at < end; at++) {
    const cells = [
      shownToken(tokenText(tokenizer, ids, at)),
      String(ids[at]),
      shownToken(String(below.cells[at])),
    ];
    const cellWidth = Math.max(...cells.map(displayWidth));
    const longer = rows.map(
      (row, i) => `${row} ${cells[i]}${' '.repeat(cellWidth - displayWidth(cells[i]!))}`,
    );
    const isFirst = rows === titles;
    if (!isFirst && displayWidth(longer[0]!) > width) {
      lines.push(...rows.map((row) => `  ${row.trimEnd()}`));
      rows = titles;
      at--;
    } else rows = longer;
  }
  lines.push(...rows.map((row) => `  ${row.trimEnd()}`));
  return lines;
}

/**
 * Text of one token. Where numbers are stored last digit first, each token is shown as it is, since decoding reverses
 * the digits of a whole number.
 */
function tokenText(tokenizer: Tokenizer, ids: Int32Array, at: number): string {
  const id = ids[at] as number;
  return tokenizer.reversesDigits && !tokenizer.isSpecial(id)
    ? Buffer.from(tokenizer.tokenBytes(id)).toString()
    : decodeSpan(tokenizer, ids, at, at + 1);
}

/** A token's text with visible white space. */
function shownToken(text: string): string {
  const visible = text
    .replaceAll('\n', '⏎')
    .replaceAll('\t', '⇥')
    .replaceAll(' ', '·')
    .replace(/\p{C}/gu, '�');
  return visible === '' ? '∅' : visible;
}

// Letters of East Asian scripts and emoji take two columns.
function displayWidth(text: string): number {
  let width = 0;
  for (const character of text)
    width +=
      /\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Katakana}|\p{Script=Hangul}|\p{Emoji_Presentation}/u.test(
        character,
      )
        ? 2
        : 1;
  return width;
}
