import { RunError } from '../../run/error.js';
import type { NeutralScore } from '../../scoring/settings.js';
import type { RunConfig } from '../table.js';

/** The configuration of a run whose model is to score with its neutral class counted otherwise; undefined: as the run has it. */
export function withNeutralScore(
  config: RunConfig,
  neutral_score: NeutralScore | undefined,
  run: string,
): RunConfig {
  if (neutral_score === undefined) return config;
  if (config.method !== 'reward' || config.data.neutral !== 'class') throw noNeutralClass(run);
  return { ...config, reward: { ...config.reward, neutral_score } };
}

export const noNeutralClass = (name: string) =>
  new RunError(
    `the model of ${name} has no class for neutral steps, so --neutral-score has nothing to count; data.neutral: class trains one`,
  );
