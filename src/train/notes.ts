/** What a run says of its data before it trains. */
import type { DataConfig } from '../config/schema.js';
import type { VerdictData } from './verdict-data.js';

export function reportData({ data }: { readonly data: DataConfig }, { tooLong }: VerdictData): void {
  if (tooLong > 0)
    console.error(`${tooLong} steps lie beyond data.max_length ${data.max_length} and get no verdict`);
}
