/** Sources of `data.source` that are generated from a seed and read no file. */
export const GENERATED = ['arithmetic', 'word_problems', 'word_problem_turns'] as const;
export type GeneratedName = (typeof GENERATED)[number];

/** Sections of `data` that generators read. */
export const GENERATORS = ['arithmetic', 'word_problems'] as const;

export function isGenerated(source: string): source is GeneratedName {
  return (GENERATED as readonly string[]).includes(source);
}

/** Whether the data are generated word problems, whose plans an oracle judges by. */
export const areWordProblems = (source: string): boolean => generatorOf(source) === 'word_problems';

/** The section of a generated source; undefined for one that is read. */
export function generatorOf(source: string): (typeof GENERATORS)[number] | undefined {
  if (source === 'word_problem_turns') return 'word_problems';
  return GENERATORS.find((name) => name === source);
}
