/** Completes the models that a run saves: their tokenizer, and how they judge. */
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { writeCard } from '../models/card.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { isAdapter } from '../weights/adapter.js';
import { methodOf, type RunConfig } from './table.js';

/** Adds tokenizer and card to every adapter and model in the run directory. */
export async function completeSaved(
  directory: string,
  config: RunConfig,
  tokenizer: Tokenizer,
): Promise<void> {
  const { base, dtype, quantize } = config.model;
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    const saved = join(directory, entry.name);
    if (!entry.isDirectory()) continue;
    const adapter = isAdapter(saved);
    if (!adapter && !existsSync(join(saved, 'config.json'))) continue;
    if (adapter) await tokenizer.save(saved);
    const judge = methodOf(config).judge?.(config, entry.name);
    await writeCard(saved, {
      method: config.method,
      ...(adapter && typeof base === 'string' ? { base } : {}),
      dtype,
      ...(adapter && quantize !== 'keep' ? { quantize } : {}),
      ...(judge ? { judge } : {}),
    });
  }
}
