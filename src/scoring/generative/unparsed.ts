import type { Scorer } from '../scorer.js';

/** The sentence on answers without the verdicts that were asked for; undefined where all could be read, or none was written. */
export function unparsedSentence({ report }: Pick<Scorer, 'report'>): string | undefined {
  const { answers = 0, verdicts = 0, unparsed = 0 } = report?.() ?? {};
  if (unparsed === 0) return undefined;
  return `${unparsed} of ${verdicts + unparsed} verdicts in ${answers} answers could not be read, and have no vote`;
}
