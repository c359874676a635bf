/** Reading of rows, on the processor whatever the device. */
import type { Group } from './cases.js';
import { dataCase } from './counted-cases.js';

/** None without a file of rows and a tokenizer. */
export function dataGroups(): readonly Group[] {
  const { STEPTRAIN_BENCH_ROWS: file, STEPTRAIN_BENCH_TOKENIZER: tokenizer } = process.env;
  if (!file || !tokenizer) return [];
  return [
    {
      title: 'rows read, tokenised and stored',
      cases: [10_000, 30_000, 100_000].map((rows) => dataCase(file, tokenizer, rows)),
      settings: ['a process for each core', 'threads of tokenizers'],
    },
  ];
}
