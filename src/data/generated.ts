/** Sources of `data.source` that are generated from a seed and read no file. */
export const GENERATED = ['arithmetic', 'word_problems'] as const;
export type GeneratedName = (typeof GENERATED)[number];

export function isGenerated(source: string): source is GeneratedName {
  return (GENERATED as readonly string[]).includes(source);
}
