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
import { type JudgeSettings, networkSettings, settingsOfFiles, settingsOfRun } from './judge-settings.js';
import type { NeutralScore } from './reward/config.js';
import { noNeutralClass, withNeutralScore } from './reward/neutral-score.js';
import { ofRun } from './run-model.js';
import type { RunConfig } from './table.js';

export interface RunScorers {
  /** By name, the one that is meant where none is named first. */
  readonly scorers: Readonly<Record<string, StepScorer>>;
  /** From which probability on the run calls a step right; absent: where right is the likelier word. */
  readonly threshold?: number;
  /** The first scorer knows outcomes alone, and nothing of steps. */
  readonly outcomesAlone?: true;
  dispose(): void;
}

/**
 * @param run a run directory; undefined: what the card beside the model says, if anything, as of an adapter or a whole model that a
 *   run has left
 */
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
  const { decoder, adapter } = model;
  const config = run === undefined ? undefined : await configOf(run, neutralScore);
  const settings =
    config && run !== undefined ? settingsOfRun(config, run) : settingsOfCard(model, neutralScore);
  if (!settings) return none;
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
  const directory = join(run ?? '', 'reward');
  const of = config && networkSettings(config);
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

async function configOf(run: string, neutralScore: NeutralScore | undefined): Promise<RunConfig> {
  const { config } = parseRunConfig(await readRunConfig(run), { name: join(run, 'config.yaml') });
  return withNeutralScore(config, neutralScore, run);
}

function settingsOfCard(
  { files }: Model,
  neutral_score: NeutralScore | undefined,
): JudgeSettings | undefined {
  const settings = files && settingsOfFiles(files);
  if (neutral_score === undefined || settings === undefined) return settings;
  if (settings.kind === 'reward_model' && settings.neutral_score !== undefined)
    return { ...settings, neutral_score };
  throw noNeutralClass(files?.adapter ?? files?.model ?? 'this model');
}

/** Loads an adapter or a whole model with what its card says; what the tokenizer cannot express has no score. */
export async function openCardScorers(device: Device, name: string): Promise<RunScorers> {
  const model = await loadModel(device, name);
  return scoring(model, name, async () =>
    runScorers(undefined, { model, tokenizer: await model.tokenizer(), skipUnreadable: true }),
  );
}

/**
 * Loads the model of a run with what scores steps; one that the tokenizer cannot express has no score.
 *
 * @throws RunError for a run whose model judges no steps
 */
export async function openRunScorers(device: Device, run: string): Promise<RunScorers> {
  const { directory, tokenizer, ...options } = await ofRun(run);
  const model = await loadModel(device, directory, options);
  return scoring(model, run, () => runScorers(run, { model, tokenizer, skipUnreadable: true }));
}

/** What `open` finds, with the model, which is disposed with it or where nothing is found. */
async function scoring(model: Model, name: string, open: () => Promise<RunScorers>): Promise<RunScorers> {
  try {
    const found = await open();
    if (Object.keys(found.scorers).length === 0)
      throw new RunError(`${name} is a run whose model judges no steps`);
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
