// What scores solutions: a run that learned it, or a classification model as transformers saves them.
import { loadModel } from '../api/model.js';
import { className } from '../architectures/heads.js';
import { isBidirectional } from '../architectures/table.js';
import type { SolutionScorer } from '../eval/solving/judging.js';
import { rewardModel } from '../eval/solving/reward-model.js';
import { baseDirectory, judgeFor } from '../models/base.js';
import { readCard } from '../models/card.js';
import { namedModel } from '../models/saved.js';
import { RunError } from '../run/error.js';
import { resolveModel } from '../run/paths.js';
import { configuredTokenizer } from '../run/tokenizer.js';
import type { Device } from '../runtime/device.js';
import { LAYOUT } from './reward/config.js';
import { CLASSES } from './reward/items.js';
import { rewardModelScorer } from './reward/scorer.js';
import { openRunScorers, type RunScorers } from './run-scorers.js';

/** By steps, or of a model of sequences by texts as they are. */
export interface RewardModel extends RunScorers {
  readonly outcomes?: SolutionScorer;
}

/**
 * Loads a reward model onto `device`.
 *
 * @param name a run, an adapter or a model that a run has left, a judge of the package, or the directory or hub id of a classification model: of tokens, which scores each step at its
 *   last token, or of sequences, which scores whole solutions
 * @throws RunError for a run whose model judges no steps, and for a model that is no classifier
 */
export async function openRewardModel(device: Device, name: string): Promise<RewardModel> {
  const { kind, adapter } = namedModel(judgeFor(name));
  const judge = kind === 'elsewhere' ? undefined : readCard(adapter ?? name)?.judge;
  // A whole classifier scores by its head, whoever trained it.
  const byCard =
    judge && (adapter !== undefined || judge.kind === 'verdict' || judge.kind === 'implicit_prm');
  if (kind === 'run' || byCard) return openRunScorers(device, name);
  const found = await resolveModel({ base: name, tokenizer: 'base' }, () => name);
  const model = await loadModel(device, baseDirectory(found.base));
  try {
    const { decoder } = model;
    const { head } = decoder.config;
    if (!('numLabels' in head) || (head.numLabels > 2 && head.labels?.join() !== CLASSES.join()))
      throw new RunError(
        `${name} is a ${className(decoder.config)}${'numLabels' in head ? ` of ${head.numLabels} classes` : ''} and scores no ` +
          'solutions; name a run, or a classification model of tokens or sequences with one output or two',
      );
    const tokenizer = await configuredTokenizer(found);
    const dispose = () => model.dispose();
    if (head.kind === 'sequence')
      return { scorers: {}, outcomes: rewardModel(model, { name, tokenizer }), dispose };
    const reward = rewardModelScorer(decoder, {
      tokenizer,
      prompt: { template: LAYOUT },
      settings: {
        type: 'prm',
        head: head.numLabels === 1 ? 'scalar' : 'classes',
        input: isBidirectional(decoder.config) ? 'prefixes' : 'whole',
      },
      skipUnreadable: true,
    });
    return { scorers: { reward }, dispose };
  } catch (error) {
    model.dispose();
    throw error;
  }
}
