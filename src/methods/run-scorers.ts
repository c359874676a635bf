// What of a run can score steps: its verdict or reward model, and the reward network where it was kept.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { loadModel, type Model } from '../api/model.js';
import type { StepScorer } from '../eval/step-scorer.js';
import { loadAdapter } from '../models/adapter.js';
import { loadDecoder } from '../models/load.js';
import { readRunConfig } from '../run/directory.js';
import { RunError } from '../run/error.js';
import type { Device } from '../runtime/device.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { isAdapter } from '../weights/adapter.js';
import { parseRunConfig } from './config.js';
import { openReference } from './implicit-reference.js';
import { scorersOf } from './judge.js';
import { networkSettings, settingsOfRun } from './judge-settings.js';
import type { NeutralScore } from './reward/config.js';
import { withNeutralScore } from './reward/neutral-score.js';
import { ofRun } from './run-model.js';

export interface RunScorers {
  /** By name, the one that is meant where none is named first. */
  readonly scorers: Readonly<Record<string, StepScorer>>;
  /** From which probability on the run calls a step right; absent: where right is the likelier word. */
  readonly threshold?: number;
  /** The first scorer knows outcomes alone, and nothing of steps. */
  readonly outcomesAlone?: true;
  dispose(): void;
}

/** @param run a run directory; undefined: a model that was not trained here, which scores nothing */
export async function runScorers(
  run: string | undefined,
  {
    model,
    tokenizer,
    skipUnreadable = false,
    neutralScore,
  }: {
    readonly model: Model;
    readonly tokenizer: Tokenizer;
    readonly skipUnreadable?: boolean;
    readonly neutralScore?: NeutralScore | undefined;
  },
): Promise<RunScorers> {
  const none = { scorers: {}, dispose: () => {} };
  if (run === undefined) return none;
  const { config: own } = parseRunConfig(await readRunConfig(run), { name: join(run, 'config.yaml') });
  const config = withNeutralScore(own, neutralScore, run);
  const settings = settingsOfRun(config, run);
  if (!settings) return none;
  const { decoder, adapter } = model;
  if (settings.kind === 'implicit_prm') {
    const reference = await openReference(model, settings);
    return {
      scorers: scorersOf(settings, { decoder, adapter, reference, tokenizer, skipUnreadable }),
      dispose: () => reference.dispose(),
    };
  }
  const scorers = scorersOf(settings, { decoder, adapter, tokenizer, skipUnreadable });
  const common = {
    ...(settings.threshold === 'greedy' ? {} : { threshold: settings.threshold }),
    ...(settings.kind === 'reward_model' && settings.type === 'orm' ? { outcomesAlone: true as const } : {}),
  };
  const directory = join(run, 'reward');
  const of = networkSettings(config);
  if (!of || !existsSync(directory)) return { ...none, ...common, scorers };
  // A run without lora leaves a model of its own.
  const network = isAdapter(directory)
    ? { decoder, adapter: loadAdapter(decoder.device, decoder.config, directory) }
    : {
        decoder: await loadDecoder(decoder.device, directory, { dtype: decoder.options.dtype }),
        adapter: undefined,
      };
  const { reward } = scorersOf(of, { ...network, tokenizer });
  return {
    ...common,
    scorers: { ...scorers, ...(reward ? { reward } : {}) },
    dispose: () => (network.adapter ?? network.decoder).dispose(),
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
