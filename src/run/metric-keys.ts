/** Tells the metrics of training and of evaluations in metrics.jsonl apart, which may have the same names. */

/** Prefix for the keys of evaluations between steps. */
export const VALIDATION = 'validation/';

/**
 * Returns the function from a key of this line to the name of its curve. Lines of training have the tokens so far; without them a line
 * of a phase is an evaluation, but for that of the test part and the one that counts rows.
 */
export function curveKeys(line: Readonly<Record<string, unknown>>): (key: string) => string {
  const { phase } = line;
  if (typeof phase !== 'string' || 'tokens' in line || phase === 'test' || 'rows' in line)
    return (key) => key;
  return (key) => (key === 'phase_step' || /^(?:validation|best)_/.test(key) ? key : VALIDATION + key);
}
