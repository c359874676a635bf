/** Lines on the numbers of solutions, steps and samples at each stage. */
import { formatTable } from '../terminal/table.js';
import type { Tally } from './tally.js';

/** Lines on the stages with the numbers left at each, then on how different the wrong steps are. */
export function reportLines({ tally, tokens }: { readonly tally: Tally; readonly tokens: number }): string[] {
  const { counts, errors } = tally.state;
  const samples = tally.get('samples');
  const kinds = Object.entries(errors).sort(([, a], [, b]) => b - a);
  return [
    ...formatTable(Object.entries(counts).map(([name, count]) => [name, String(count)])).split('\n'),
    `distinct wrong steps: ${tally.distinctWrongSteps} of ${samples}`,
    ...(kinds.length > 0
      ? [
          `their errors, as the oracle sees them: ${kinds.map(([kind, count]) => `${kind} ${count}`).join(', ')} ` +
            `(${tally.errorEntropy.toFixed(2)} bits)`,
        ]
      : []),
    `tokens drawn: ${tokens}`,
  ];
}
