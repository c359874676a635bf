/** Whatever scores solutions, opened by its name: the one place that commands, recipes and programs ask. */

import { statSync } from 'node:fs';
import { openSaved } from '../api/model.js';
import { isGguf } from '../models/gguf.js';
import type { Quantize } from '../models/quantize.js';
import { RunError } from '../run/error.js';
import { type ResolveOptions, resolveSaved } from '../run/resolve-saved.js';
import { namedTokenizer } from '../run/tokenizer.js';
import type { Device } from '../runtime/device.js';
import { fileScorer } from './files.js';
import { functionScorer, type ScoreFunction } from './functions.js';
import { judgeIn } from './judge.js';
import { checkUnsure, modelScorers, type OpenScorers, type ScoringOptions, settingsOf } from './kinds.js';
import { oracleScorer } from './oracle.js';
import { referenceScorer } from './reference.js';
import { ofOutcomes, type Scorer } from './scorer.js';
import { type LlmJudgeOptions, llmJudge } from './server/llm.js';

/**
 * A name: `oracle` (for generated problems), `reference` (for problems with worked solutions), a file of labels or
 * scores, the address of an OpenAI-compatible server, with the name of its model after a `#` (default `default`), or a
 * model: a run, an adapter, a directory, a hub id, `word-problems-judge` of the package. Or a server with its
 * settings, a function, or a scorer.
 */
export type ScorerSource = string | LlmJudgeOptions | ScoreFunction | Scorer;

export interface OpenScorerOptions extends ScoringOptions, ResolveOptions, Pick<Partial<Scorer>, 'unit'> {
  /**
   * The name of one of a model's scorers, such as `outcome`; `judge` is the one that `judgeSteps` uses. Default: its
   * first, or the one of that `unit`.
   */
  readonly part?: string | undefined;
  /** Column of a file of scores. Default `score`, where the rows are numbered. */
  readonly column?: string | undefined;
  readonly dtype?: 'f32' | 'bf16' | undefined;
  /** Default: as its run had it, else `keep`. */
  readonly quantize?: Quantize | undefined;
  /** Models that serve as several scorers, by name; the map's creator disposes of them. Default: each loads its own. */
  readonly shared?: Map<string, OpenScorers>;
  /** A solution that the tokenizer cannot express is an error. Default false: it has no score. */
  readonly strict?: boolean;
}

/** @throws RunError for a model that scores nothing, or has no such scorer */
export async function openScorer(
  device: Device,
  source: ScorerSource,
  options: OpenScorerOptions = {},
): Promise<Scorer> {
  const { shared } = options;
  const own = await withoutModel(source, options);
  if (own) return chosen({ scorers: { score: own }, dispose: () => own.dispose() }, own.name, options);
  const name = source as string;
  const opened = shared?.get(name) ?? (await openModel(device, name, options));
  shared?.set(name, opened);
  try {
    const found = chosen(opened, name, options);
    return shared ? found : { ...found, dispose: () => opened.dispose() };
  } catch (error) {
    if (!shared) opened.dispose();
    throw error;
  }
}

/** All that scores behind a name: in a model often several, such as `verdict` and `reward`; else `score`. */
export async function openScorers(
  device: Device,
  source: ScorerSource,
  options: OpenScorerOptions = {},
): Promise<OpenScorers> {
  const own = await withoutModel(source, options);
  return own
    ? { scorers: { score: own }, dispose: () => own.dispose() }
    : openModel(device, source as string, options);
}

/** Undefined for the name of a model. */
async function withoutModel(
  source: ScorerSource,
  { unit, column, unsure }: OpenScorerOptions,
): Promise<Scorer | undefined> {
  checkUnsure(unsure);
  const own = await named(source, unit, column);
  return own && (unsure === undefined ? own : { ...own, unsure });
}

async function named(
  source: ScorerSource,
  unit: OpenScorerOptions['unit'],
  column: OpenScorerOptions['column'],
): Promise<Scorer | undefined> {
  if (typeof source === 'function') return functionScorer(source, unit ? { unit } : {});
  if (typeof source !== 'string') return 'url' in source ? llmJudge(source) : source;
  if (source === 'oracle') return oracleScorer;
  if (source === 'reference') return referenceScorer;
  if (isAddress(source)) return serverJudge(source);
  return isDataFile(source) ? fileScorer(source, column) : undefined;
}

function serverJudge(address: string): Scorer {
  const [url = '', model] = address.split('#');
  return llmJudge({ url, model: model || 'default', apiKey: process.env.OPENAI_API_KEY });
}

async function openModel(
  device: Device,
  name: string,
  { dtype, quantize, strict = false, ...options }: OpenScorerOptions,
): Promise<OpenScorers> {
  const saved = await resolveSaved(name, options);
  const model = await openSaved(device, saved, { dtype, quantize });
  try {
    const settings = settingsOf(model, options, name);
    const tokenizer = await namedTokenizer(saved.tokenizer);
    const run = saved.kind === 'run' ? saved.name : undefined;
    const { maxLength } = options;
    const how = { name, run, settings, tokenizer, maxLength, skipUnreadable: !strict };
    const found = await modelScorers(model, how);
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

/** Whether a name is that of something else than a model. */
export const isNoModel = (name: string) =>
  name === 'oracle' || name === 'reference' || isAddress(name) || isDataFile(name);

const isAddress = (name: string) => /^https?:\/\//.test(name);

export const isDataFile = (name: string) =>
  !isGguf(name) && (name.includes('*') || statSync(name, { throwIfNoEntry: false })?.isFile() === true);

function chosen({ scorers }: OpenScorers, name: string, { part, unit }: OpenScorerOptions): Scorer {
  const all = Object.entries(scorers);
  const [, first] = all[0] as [string, Scorer];
  if (part === 'judge') return judgeIn({ scorers });
  if (part !== undefined) {
    const found = scorers[part];
    if (found) return { ...found, name: `${name} (${part})` };
    throw new RunError(`${name} has no scorer ${part}; its scorers are ${Object.keys(scorers).join(', ')}`);
  }
  if (unit === 'step' && first.unit === 'outcome') throw ofOutcomes(name);
  return all.find(([, each]) => each.unit === unit)?.[1] ?? first;
}
