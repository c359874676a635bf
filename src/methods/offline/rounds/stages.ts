/** The stages of a round: samples, labels, log-probs of the reference, training, evaluation. */

import { adapterUse } from '../../../config/adapter.js';
import type { Dataset } from '../../../data/dataset.js';
import { inMemory } from '../../../data/dataset.js';
import { objectRows } from '../../../data/rows.js';
import { badFile, type DataError } from '../../../files/data-error.js';
import { loadAdapter } from '../../../models/adapter.js';
import { baseDirectory } from '../../../models/base.js';
import { loadDecoder } from '../../../models/load.js';
import type { StepRecord } from '../../../records/record.js';
import type { OfflineItem } from '../../../scoring/implicit/items.js';
import { answerTokenizer } from '../../../scoring/implicit/tokens.js';
import { toLog } from '../../../terminal/log.js';
import type { StageEntry } from '../../../train/stage.js';
import { type OfflinePlan, referencedItems, trainingPlan } from '../answers/plan.js';
import { type LoadedReference, referenceStage, referenceSums } from '../answers/reference.js';
import { offlineStage } from '../answers/stage.js';
import { artefactRows, type CandidateRow } from './candidates.js';
import { completionsJudge } from './completions.js';
import type { RoundSettings, RoundsConfig } from './config.js';
import { labelJudge } from './judges.js';
import { labelStage } from './label.js';
import type { AskingRun, OfflineLearning } from './run.js';
import { roundProblems, sampleStage } from './sample.js';
import { evaluation, passAt1, solutionsOf, validation } from './solving.js';

/** M0 that is more than the base without its adapter is a second copy, loaded while a round asks it. */
export function loadsReference(
  { lora, model }: RoundsConfig,
  { iterations, reference }: RoundSettings,
): boolean {
  return reference === 'm0' && (lora === 'none' || adapterUse(model).start !== undefined) && iterations > 0;
}

/** The model that the run began with. */
async function firstModel({ config: { model }, device, roles }: AskingRun): Promise<LoadedReference> {
  const { start } = adapterUse(model);
  if (start !== undefined) {
    const adapter = loadAdapter(device, roles.decoder.config, start);
    return { decoder: roles.decoder, role: { adapter }, dispose: () => adapter.dispose() };
  }
  const decoder = await loadDecoder(device, baseDirectory(model.base as string), {
    dtype: model.dtype,
    quantize: model.quantize,
  });
  return { decoder, role: {}, dispose: () => decoder.dispose() };
}

export function roundStages(open: AskingRun, learning: OfflineLearning): StageEntry[] {
  const settings = learning.settings(open.config);
  const rounds = Array.from({ length: settings.iterations }, (_, i) => round(open, i + 1, learning));
  return [evaluation(open, 0, settings), ...rounds.flat(), ...validation(open, settings)];
}

/** Why nothing of a round can be learned: most often its candidates were cut off before they came to an answer. */
export function nothingToLearn(
  candidates: readonly Pick<CandidateRow, 'finish_reason'>[],
  {
    round,
    what,
    max_new_tokens,
    where,
  }: {
    readonly round: number;
    readonly what: string;
    readonly max_new_tokens: number;
    readonly where: string;
  },
): DataError {
  const cut = candidates.filter(({ finish_reason }) => finish_reason === 'length').length;
  const all = candidates.length;
  const limit = `cut off at sampling.max_new_tokens ${max_new_tokens}`;
  return badFile(
    all > 0 && cut === all
      ? `round ${round} has nothing to learn from: all ${all} candidates were ${limit}; raise it`
      : `round ${round} has no ${what} to learn from: of ${all} candidates ${cut} were ${limit}; see ${where}, and left_… in metrics.jsonl`,
  );
}

/** Round `i`, from 1. */
function round(open: AskingRun, i: number, learning: OfflineLearning): StageEntry[] {
  const { config, data, roles, run, tokenizer } = open;
  const { name } = learning;
  const settings = learning.settings(config);
  const kind = learning.kind(config);
  const objective = (train: Dataset<OfflineItem>) => learning.objective(config, train);
  const { sampling } = config;
  const names = {
    samples: `samples-${i}`,
    labels: `labels-${i}`,
    reference: `reference-${i}`,
    training: `${name}-${i}`,
  };
  const microBatchTokens = open.microBatchTokens(name);
  const seed = (config.run.seed + i) >>> 0;
  const path = (name: string) => run.artefact(name).path;
  const planned = async (say: (sentence: string) => void = () => {}): Promise<OfflinePlan> => {
    const records = await artefactRows<StepRecord>(path(names.labels));
    const tokens = answerTokenizer(tokenizer, config.question.template);
    const made = kind.items(records, tokens, (rows, reason) => {
      if (rows > 0) say(`${rows} of ${records.length} labelled candidates ${reason} are left out`);
    });
    const items = made.filter((item) =>
      item.answers.every(({ ids }) => item.prompt.length + ids.length <= config.data.max_length),
    );
    if (items.length < made.length)
      say(
        `${made.length - items.length} of ${made.length} ${kind.noun} are longer than data.max_length ${config.data.max_length} and are left out`,
      );
    if (items.length === 0)
      throw nothingToLearn(await artefactRows<CandidateRow>(path(names.samples)), {
        round: i,
        what: kind.noun,
        max_new_tokens: sampling.max_new_tokens,
        where: `${names.labels}.jsonl and ${names.samples}.jsonl`,
      });
    const { needsMismatched: pairs } = objective(inMemory(items));
    const options = { pairs, maxLength: config.data.max_length, settings, seed };
    return trainingPlan(inMemory<OfflineItem>(items), options);
  };
  const judge =
    config.judge.kind === 'completions' ? completionsJudge(open, i) : labelJudge(config, open.device);
  const { needsReference } = objective(inMemory<OfflineItem>([]));
  const reference: StageEntry = {
    name: names.reference,
    expectedTokens: () => 0,
    prepare: async () =>
      referenceStage({
        name: names.reference,
        decoder: roles.decoder,
        // The model that the round begins with, or the base without its adapter.
        role: settings.reference === 'm0' ? {} : roles.role,
        ...(loadsReference(config, settings) ? { load: () => firstModel(open) } : {}),
        items: referencedItems(await planned()),
        microBatchTokens,
        settings,
      }),
  };
  return [
    sampleStage({
      name: names.samples,
      iteration: i,
      source: solutionsOf(open),
      prompts: data.asked.parts.train.prompts,
      problems: roundProblems(data.asked.parts.train.problems.length, {
        iteration: i,
        size: sampling.problems_per_iteration,
        fresh: sampling.fresh_problems,
        seed: config.run.seed,
      }),
      settings,
      n: sampling.num_generations,
      draws: run.draws,
    }),
    {
      name: names.labels,
      expectedTokens: () => 0,
      prepare: async () =>
        labelStage({
          name: names.labels,
          source: names.samples,
          rows: await artefactRows<CandidateRow>(path(names.samples)),
          problems: data.asked.parts.train.problems,
          judge,
          outcome: config.judge.outcome,
          control: { flip: config.judge.flip, labels: config.judge.control, seed },
          selection: sampling,
          maxNewTokens: sampling.max_new_tokens,
          settings,
        }),
    },
    ...(needsReference ? [reference] : []),
    {
      name: names.training,
      async prepare() {
        const plan = await planned((sentence) => toLog(`round ${i}: ${sentence}`));
        return offlineStage({
          name: names.training,
          decoder: roles.decoder,
          role: roles.role,
          parameters: roles.trained,
          objective: objective(plan.items),
          plan,
          references: needsReference
            ? await referenceSums(objectRows(path(names.reference)), plan.references)
            : [],
          settings,
          microBatchTokens,
          seed,
          best: 'pass_at_1',
          validate: (signal) => passAt1(open, { settings, signal }),
          // The model of each round is kept.
          end: () => roles.save((name) => run.file(`${name}-${i}`)),
        });
      },
    },
    evaluation(open, i, settings),
  ];
}
