// How many tokens a run has trained.
import { readResults } from './values.js';

/** The trained tokens of a run that has ended, as its evaluation says, else its log; undefined where neither does. */
export async function trainedTokens(directory: string): Promise<number | undefined> {
  const { report, log } = await readResults(directory);
  const { trained_tokens: said } = (report as { data?: { trained_tokens?: unknown } }).data ?? {};
  if (typeof said === 'number') return said;
  const counts = log.flatMap(({ tokens }) => (typeof tokens === 'number' ? [tokens] : []));
  return counts.length > 0 ? Math.max(...counts) : undefined;
}
