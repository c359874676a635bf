/** Reads the measured quality of a reward model before anything learns from it. */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import {
  MIN_AUC,
  parseRewardQuality,
  placeSentence,
  type RewardQuality,
  standingOf,
  withinProblems,
} from '../eval/reward-quality.js';
import { percent } from '../eval/statistics/percent.js';
import { contentHash, sampledHash } from '../files/content-hash.js';
import { readJson } from '../files/json-file.js';
import { typedCommand } from '../native/typed-command.js';
import { RunError } from '../run/error.js';
import { type ResolveOptions, resolveSaved } from '../run/resolve-saved.js';
import { isNoModel } from '../scoring/open.js';
import { warn } from '../terminal/log.js';

/** File in the directory of the weights; `steptrain eval reward-model` writes it. */
export const REWARD_QUALITY = 'reward-quality.json';

/** The directory of a model's own weights: the adapter's, for an adapter on a base. */
export async function rewardWeights(
  name: string,
  options: Pick<ResolveOptions, 'adapter' | 'otherBase'> = {},
): Promise<{ readonly directory: string; readonly hash: string | undefined }> {
  const { directory, adapter } = await resolveSaved(name, options);
  const own = adapter ?? directory;
  if (statSync(own).isFile()) return { directory: dirname(own), hash: await sampledHash(own) };
  const file = ['adapter_model.safetensors', 'model.safetensors']
    .map((each) => join(own, each))
    .find(existsSync);
  if (file !== undefined) return { directory: own, hash: await contentHash(file) };
  // Shards, and what PyTorch wrote: many gigabytes.
  const files = readdirSync(own).filter((each) => /\.(safetensors|bin)$/.test(each));
  const hashes = await Promise.all(files.sort().map((each) => sampledHash(join(own, each))));
  return { directory: own, hash: hashes.length === 0 ? undefined : hashes.join('; ') };
}

/**
 * Refuses a reward model whose AUC within problems is not above {@link MIN_AUC}, and reports one of unknown quality.
 *
 * @returns a sentence for the reader, or undefined
 * @throws RunError for a weak model, unless it is accepted
 */
export async function checkRewardModel(
  name: string,
  { accept = false }: { readonly accept?: boolean } = {},
): Promise<string | undefined> {
  const { directory, hash } = await rewardWeights(name);
  const path = join(directory, REWARD_QUALITY);
  const measure = `measure it with: ${typedCommand(`eval reward-model STEPS.jsonl --model ${name}`)}`;
  if (!existsSync(path)) return `the quality of the reward model ${name} is not known; ${measure}`;
  let quality: RewardQuality;
  try {
    quality = parseRewardQuality(await readJson(path));
  } catch (error) {
    throw new RunError(
      `${path} is not as steptrain eval reward-model writes it: ${(error as Error).message}`,
    );
  }
  if (quality.weights !== hash) return `${path} is of other weights than those of ${name}; ${measure}`;
  const standing = standingOf(quality);
  if (standing === 'strong') {
    const place = placeSentence(quality);
    return place && `the reward model ${name}: ${place}`;
  }
  if (standing === 'unknown')
    return `${path} has no problem with right and wrong ${quality.unit}, so how ${name} ranks within a problem is not known; ${measure}`;
  const found = `the reward model ${name} is weak: ${withinProblems(quality)} on ${quality.problems} problems is not above ${percent(MIN_AUC)}`;
  if (accept) return `${found}; it is accepted`;
  throw new RunError(
    `${found}, and what learns from it learns noise; train a better one, or take it nevertheless with --accept-weak-reward`,
  );
}

/** Checks the model of that name before a run or an evaluation opens it; names of no model pass. */
export async function admitScorer(name: string, accept: boolean): Promise<void> {
  if (isNoModel(name)) return;
  const notice = await checkRewardModel(name, { accept });
  if (notice !== undefined) warn(notice);
}
