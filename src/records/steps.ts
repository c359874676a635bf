import { splitOutside } from './mathematics.js';

/** The steps of a text: its paragraphs, or its lines where no blank line parts them. A formula is never cut. */
export function stepsOf(text: string): string[] {
  const trimmed = text.trim();
  const paragraphs = splitOutside(trimmed, /\n\s*\n/g);
  const parts = paragraphs.length > 1 ? paragraphs : splitOutside(trimmed, /\n/g);
  return parts.map((part) => part.trim()).filter((part) => part !== '');
}

/**
 * The pieces of a text that are its steps, with the white space between them: joined by line breaks they are the text again, without
 * white space at its end.
 */
export function stepPieces(text: string): string[] {
  const pieces: string[] = [];
  const whole = text.trimEnd();
  let from = 0;
  let reached = 0;
  for (const [i, step] of stepsOf(whole).entries()) {
    const start = whole.indexOf(step, reached);
    reached = start + step.length;
    if (i === 0) continue;
    const cut = whole.lastIndexOf('\n', start);
    pieces.push(whole.slice(from, cut));
    from = cut + 1;
  }
  return reached === 0 ? [] : [...pieces, whole.slice(from)];
}
