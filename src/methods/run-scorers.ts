// What of a run can score steps: its verdict or reward model, and the reward network where it was kept.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type Model, openSaved } from '../api/model.js';
import type { StepScorer } from '../eval/step-scorer.js';
import { loadAdapter } from '../models/adapter.js';
import { loadDecoder } from '../models/load.js';
import { RunError } from '../run/error.js';
import { resolveJudge } from '../run/resolve-saved.js';
import { namedTokenizer } from '../run/tokenizer.js';
import type { Device } from '../runtime/device.js';
import { type JudgeSettings, type NeutralScore, settingsOfFiles } from '../scoring/settings.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { isAdapter } from '../weights/adapter.js';
import { openReference } from './implicit-reference.js';
import { scorersOf } from './judge.js';

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
 * By what the card beside the model says, if anything.
 *
 * @param run of the model of a run its directory, where a reward network may lie beside it
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
  const { decoder, adapter, files } = model;
  const own = files && settingsOfFiles(files);
  if (!own) return none;
  const settings = withNeutralScore(own, neutralScore, run ?? files.adapter ?? files.model);
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
  const of =
    run !== undefined && existsSync(directory)
      ? settingsOfFiles({ model: directory, adapter: undefined })
      : undefined;
  if (of?.kind !== 'reward_network') return { ...none, ...common, scorers };
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

/** The settings of a model that is to score with its neutral class counted otherwise; undefined: as its run has it. */
export function withNeutralScore(
  settings: JudgeSettings,
  neutral_score: NeutralScore | undefined,
  name: string,
): JudgeSettings {
  if (neutral_score === undefined) return settings;
  if (settings.kind === 'reward_model' && settings.neutral_score !== undefined)
    return { ...settings, neutral_score };
  throw new RunError(
    `the model of ${name} has no class for neutral steps, so --neutral-score has nothing to count; data.neutral: class trains one`,
  );
}

/**
 * Loads a model with what scores steps; a solution that the tokenizer cannot express has no score.
 *
 * @throws RunError for a model that judges no steps
 */
export async function openRunScorers(device: Device, name: string): Promise<RunScorers> {
  const saved = await resolveJudge(name);
  const model = await openSaved(device, saved);
  try {
    const tokenizer = await namedTokenizer(saved.tokenizer);
    const run = saved.kind === 'run' ? name : undefined;
    const found = await runScorers(run, { model, tokenizer, skipUnreadable: true });
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
