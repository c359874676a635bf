// What of a run can score steps: its verdict model, and the reward network where it was kept.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { loadModel, type Model } from '../api/model.js';
import type { StepScorer } from '../eval/step-scorer.js';
import { type Adapter, loadAdapter } from '../models/adapter.js';
import { readRunConfig } from '../run/directory.js';
import { RunError } from '../run/error.js';
import type { Device } from '../runtime/device.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { parseRunConfig } from './config.js';
import { scorersOf } from './judge.js';
import { judgeSettings, networkSettings } from './judge-settings.js';
import { ofRun } from './run-model.js';

export interface RunScorers {
  /** By name, the one that is meant where none is named first. */
  readonly scorers: Readonly<Record<string, StepScorer>>;
  /** From which probability on the run calls a step right; absent: where right is the likelier word. */
  readonly threshold?: number;
  dispose(): void;
}

/** @param run a run directory; undefined: a model that was not trained here, which scores nothing */
export async function runScorers(
  run: string | undefined,
  {
    model,
    tokenizer,
    skipUnreadable = false,
  }: { readonly model: Model; readonly tokenizer: Tokenizer; readonly skipUnreadable?: boolean },
): Promise<RunScorers> {
  const none = { scorers: {}, dispose: () => {} };
  if (run === undefined) return none;
  const { config } = parseRunConfig(await readRunConfig(run), { name: join(run, 'config.yaml') });
  const settings = judgeSettings(config);
  if (!settings) return none;
  const { decoder, adapter } = model;
  const scorers = scorersOf(settings, { decoder, adapter, tokenizer, skipUnreadable });
  const threshold = settings.threshold === 'greedy' ? {} : { threshold: settings.threshold };
  const directory = join(run, 'reward');
  const of = networkSettings(config);
  if (!of || !existsSync(directory)) return { ...none, ...threshold, scorers };
  const network: Adapter = loadAdapter(decoder.device, decoder.config, directory);
  const { reward } = scorersOf(of, { decoder, adapter: network, tokenizer });
  return {
    ...threshold,
    scorers: { ...scorers, ...(reward ? { reward } : {}) },
    dispose: () => network.dispose(),
  };
}

/**
 * Loads the model of a run with what scores steps; one that the tokenizer cannot express has no score.
 *
 * @throws RunError for a run whose model judges no steps
 */
export async function openRunScorers(device: Device, run: string): Promise<RunScorers> {
  const { directory, tokenizer, ...options } = await ofRun(run);
  const model = await loadModel(device, directory, options);
  try {
    const found = await runScorers(run, { model, tokenizer, skipUnreadable: true });
    if (Object.keys(found.scorers).length === 0)
      throw new RunError(`${run} is a run whose model judges no steps`);
    return {
      ...found,
      dispose() {
        found.dispose();
        model.dispose();
      },
    };
  } catch (error) {
    model.dispose();
    throw error;
  }
}
