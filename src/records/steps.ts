/** The steps of a text: its paragraphs, or its lines where no blank line parts them. */
export function stepsOf(text: string): string[] {
  const trimmed = text.trim();
  const parts = /\n\s*\n/.test(trimmed) ? trimmed.split(/\n\s*\n/) : trimmed.split('\n');
  return parts.map((part) => part.trim()).filter((part) => part !== '');
}
