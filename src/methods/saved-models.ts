/** What a run's saved models carry along: the tokenizer, and how they judge. */
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { type ModelCard, writeCard } from '../models/card.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { isAdapter } from '../weights/adapter.js';
import { judgeSettings, networkSettings, onlineImplicitSettings } from './judge-settings.js';
import { IMPLICIT } from './ppo/settings.js';
import type { RunConfig } from './table.js';

/** Adds tokenizer and card to every adapter and model in the run directory. */
export async function completeSaved(
  directory: string,
  config: RunConfig,
  tokenizer: Tokenizer,
): Promise<void> {
  const { base, dtype } = config.model;
  for (const { name } of (await readdir(directory, { withFileTypes: true })).filter((entry) =>
    entry.isDirectory(),
  )) {
    const saved = join(directory, name);
    const adapter = isAdapter(saved);
    if (!adapter && !existsSync(join(saved, 'config.json'))) continue;
    if (adapter) await tokenizer.save(saved);
    const judge =
      name === 'reward'
        ? networkSettings(config)
        : name === IMPLICIT
          ? onlineImplicitSettings(config)
          : judgeSettings(config);
    const card: ModelCard = {
      method: config.method,
      ...(adapter && typeof base === 'string' ? { base } : {}),
      dtype,
      ...(judge ? { judge } : {}),
    };
    await writeCard(saved, card);
  }
}
