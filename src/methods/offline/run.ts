/**
 * The stages of every method that learns from answers: references, training and evaluation on the answers of the data; or rounds of
 * sampling, labelling, training and evaluation on its model's own.
 */
import { rowsOf } from '../../config/sampling.js';
import { type Dataset, indices, inMemory, subset } from '../../data/dataset.js';
import { limited } from '../../data/limit.js';
import { objectRows } from '../../data/rows.js';
import { PARTS, type Part, sampleRanks } from '../../data/split.js';
import type { OfflineItem } from '../../scoring/implicit/items.js';
import type { Method, OpenRun } from '../../train/method.js';
import { configuredTrainee, type Trainee, traineeRole } from '../../train/roles/trainee.js';
import { askedProblems } from '../../train/solutions/asked.js';
import type { MakingStage, StageEntry } from '../../train/stage.js';
import type { BatchContext } from './answers/batch.js';
import { offlineData, offlinePreview } from './answers/data.js';
import { heldOutPlan, type OfflinePlan, referencedItems, trainingPlan } from './answers/plan.js';
import { referenceStage, referenceSums } from './answers/reference.js';
import { heldOutMetrics, offlineStage } from './answers/stage.js';
import type { RoundsConfig } from './rounds/config.js';
import type { AnswerData, AskingRun, OfflineLearning } from './rounds/run.js';
import { evaluation, solvedReport, validation } from './rounds/solving.js';
import { loadsReference, roundStages } from './rounds/stages.js';

type AnswerRun = OpenRun<RoundsConfig, AnswerData, Trainee>;

export function answerMethod(learning: OfflineLearning): Method<RoundsConfig, AnswerData, Trainee> {
  const { name, settings: settingsOf, kind } = learning;
  const inRounds = (config: RoundsConfig) => settingsOf(config).iterations > 0;
  const asks = (config: RoundsConfig) => inRounds(config) || config.eval_solving.solve;
  return {
    async data(config, tokenizer) {
      if (!asks(config)) return offlineData(config, tokenizer, kind(config));
      const { template } = config.question;
      const maxNewTokens = config.sampling.max_new_tokens;
      const asked = await askedProblems(config, tokenizer, { template, maxNewTokens });
      const none = inMemory<OfflineItem>([]);
      return inRounds(config)
        ? { ...asked, asked, items: { train: none, validation: none, test: none } }
        : { ...(await offlineData(config, tokenizer, kind(config))), asked };
    },
    preview: (config, tokenizer) => offlinePreview(config, tokenizer, kind(config)),
    memory: (config) => [
      traineeRole(config),
      ...(loadsReference(config, settingsOf(config)) ? [{ role: 'reference', held: 'frozen' } as const] : []),
    ],
    sampling: (config) =>
      asks(config) ? { longest: config.data.max_length, rows: rowsOf(config.sampling.max_rows) } : undefined,
    roles: (context) => configuredTrainee(context),
    stages(open) {
      if (!isAsking(open)) return onceStages(open, learning);
      if (inRounds(open.config)) return roundStages(open, learning);
      const settings = settingsOf(open.config);
      return [
        evaluation(open, 0, settings),
        ...onceStages(open, learning),
        evaluation(open, 1, settings),
        ...validation(open, settings),
      ];
    },
    // The first round's candidates and their labels come from the base alone, whatever is learned from them.
    shared(config) {
      if (!inRounds(config)) return [];
      const unread = ['method', name];
      return [
        { stage: 'eval-0', unread: [...unread, 'judge'] },
        { stage: 'samples-1', unread: [...unread, 'judge'] },
        { stage: 'labels-1', unread },
      ];
    },
    save: ({ roles, run }) => roles.save((name) => run.file(name)),
    // A stage of each round has solved the problems.
    evaluates: (config) => (inRounds(config) ? 'reads' : 'judges'),
    async evaluate(open, { tokens }) {
      if (isAsking(open) && inRounds(open.config))
        return solvedReport(open, settingsOf(open.config).iterations, tokens);
      const metrics = await heldOutMetrics(await contextOf(open, learning, 'test'));
      if (isAsking(open)) {
        const solved = await solvedReport(open, 1, tokens);
        return { ...solved, metrics: { ...metrics, ...solved.metrics } };
      }
      const shown = Object.entries(metrics).map(([name, value]) => `${name} ${value.toFixed(4)}`);
      const none = 'there are none in the test part, so nothing was measured';
      return {
        metrics,
        summary: `held-out ${kind(open.config).noun}: ${shown.join(', ') || none}`,
      };
    },
  };
}

function isAsking(open: AnswerRun): open is AskingRun {
  return open.data.asked !== undefined;
}

/** References of every part, then training on the answers of the data. */
function onceStages(open: AnswerRun, learning: OfflineLearning): StageEntry[] {
  const { config, roles } = open;
  const { name } = learning;
  const settings = learning.settings(config);
  const { needsReference } = learning.objective(config, open.data.items.train);
  const references = (part: Part): MakingStage =>
    referenceStage({
      name: artefactOf(part),
      decoder: roles.decoder,
      // Until its first update the policy is what it will be compared with, also where every weight is trained.
      role: roles.role,
      items: referencedItems(planOf(open, learning, part)),
      microBatchTokens: open.microBatchTokens(name),
      settings,
    });
  const made = needsReference ? PARTS.filter((part) => itemsOf(open, part).length > 0) : [];
  return [
    ...made.map(references),
    {
      name,
      expectedSteps: () => planOf(open, learning, 'train').batches.length,
      expectedTokens: () => planOf(open, learning, 'train').tokens,
      async prepare() {
        const context = await contextOf(open, learning, 'train');
        const held = await contextOf(open, learning, 'validation');
        return offlineStage({
          ...context,
          ...{ name, settings },
          parameters: roles.trained,
          seed: config.run.seed,
          async validate(stop) {
            const metrics = await heldOutMetrics(held);
            return stop.aborted ? undefined : metrics;
          },
        });
      },
    },
  ];
}

/** The context in which a part is trained or judged, once its references have been made. */
async function contextOf(open: AnswerRun, learning: OfflineLearning, part: Part): Promise<BatchContext> {
  const { decoder, role } = open.roles;
  const objective = learning.objective(open.config, open.data.items.train);
  const plan = planOf(open, learning, part);
  const path = open.run.artefact(artefactOf(part)).path;
  const references = objective.needsReference ? await referenceSums(objectRows(path), plan.references) : [];
  const microBatchTokens = open.microBatchTokens(learning.name);
  return { decoder, role, objective, plan, references, microBatchTokens };
}

const artefactOf = (part: Part) => `reference-${part}`;

function itemsOf({ config, data }: AnswerRun, part: Part): Dataset<OfflineItem> {
  const items = data.items[part];
  if (part === 'train') return items;
  const rankOf = (index: number, seed: number) => itemRank(items.get(index), seed);
  return subset(items, limited(indices(items), config.eval.max_samples, config.data, rankOf));
}

function itemRank({ prompt, answers }: OfflineItem, seed: number): number {
  const texts = answers.map(({ ids }) => ids.join());
  return sampleRanks(seed, prompt.join(), texts).at(-1) as number;
}

function planOf(open: AnswerRun, learning: OfflineLearning, part: Part): OfflinePlan {
  const { config, data } = open;
  const items = itemsOf(open, part);
  const { needsMismatched: pairs } = learning.objective(config, data.items.train);
  const options = { pairs, maxLength: config.data.max_length };
  if (part !== 'train') return heldOutPlan(items, options);
  const { seed, max_tokens: tokens } = config.run;
  return trainingPlan(items, { ...options, settings: learning.settings(config), seed, tokens });
}
