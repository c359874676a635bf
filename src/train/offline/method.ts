/** A method that trains on answers that are there already: only its objective and its kind of data are its own. */
import type { AnswerBatchConfig, FrameConfig, LoraConfig } from '../../config/schema.js';
import { type Dataset, indices, subset } from '../../data/dataset.js';
import { limited } from '../../data/limit.js';
import { objectRows } from '../../data/rows.js';
import { PARTS, type Part, sampleRanks } from '../../data/split.js';
import type { Method, OpenRun } from '../method.js';
import type { MakingStage } from '../stage.js';
import { createTrainee, type Trainee } from '../trainee.js';
import type { BatchContext } from './batch.js';
import { type OfflineData, type OfflineDataConfig, offlineData, offlinePreview } from './data.js';
import type { OfflineItem } from './items.js';
import type { ItemKind } from './kinds.js';
import type { OfflineObjective } from './objective.js';
import { heldOutPlan, type OfflinePlan, referencedItems, trainingPlan } from './plan.js';
import { referenceStage, referenceSums } from './reference.js';
import { heldOutMetrics, offlineStage } from './stage.js';

export interface OfflineRunConfig extends FrameConfig, OfflineDataConfig {
  readonly data: FrameConfig['data'];
  readonly lora: LoraConfig | 'none';
  readonly eval: { readonly max_samples: number | 'all' };
}

export interface OfflineMethodOptions<Config extends OfflineRunConfig> {
  readonly kind: ItemKind | ((config: Config) => ItemKind);
  /** The name of the stage and its section, its settings, and what it learns. */
  readonly stage: (config: Config) => {
    readonly name: string;
    readonly settings: AnswerBatchConfig;
    /** `train`: what it may count before it begins. */
    readonly objective: (train: Dataset<OfflineItem>) => OfflineObjective;
  };
}

type OfflineRun<Config extends OfflineRunConfig> = OpenRun<Config, OfflineData, Trainee>;

export function offlineMethod<Config extends OfflineRunConfig>({
  kind,
  stage: stageOf,
}: OfflineMethodOptions<Config>): Method<Config, OfflineData, Trainee> {
  const kindOf = typeof kind === 'function' ? kind : () => kind;
  const stage = ({ config, data }: OfflineRun<Config>) => {
    const { objective, ...rest } = stageOf(config);
    return { ...rest, objective: objective(data.items.train) };
  };
  /** What a part is trained or judged with, once its references have been made. */
  const contextOf = async (open: OfflineRun<Config>, part: Part): Promise<BatchContext> => {
    const { name, settings, objective } = stage(open);
    const { decoder, role } = open.roles;
    const plan = planOf(open, part, { settings, objective });
    const microBatchTokens = open.microBatchTokens(name);
    const path = open.run.artefact(artefactOf(part)).path;
    const references = objective.needsReference ? await referenceSums(objectRows(path), plan.references) : [];
    return { decoder, role, objective, plan, references, microBatchTokens };
  };
  return {
    data: (config, tokenizer) => offlineData(config, tokenizer, kindOf(config)),
    preview: (config, tokenizer) => offlinePreview(config, tokenizer, kindOf(config)),
    memory: ({ lora }) => [{ role: lora === 'none' ? 'model' : 'policy', held: 'trained' }],
    roles: ({ device, config: { model, lora, run }, tokenizer }) =>
      createTrainee(device, {
        model,
        lora,
        tokenizer,
        seed: run.seed,
        gradientCheckpointing: run.gradient_checkpointing,
      }),
    stages(open) {
      const { config, roles } = open;
      const { name, settings, objective } = stage(open);
      const references = (part: Part): MakingStage =>
        referenceStage({
          name: artefactOf(part),
          decoder: roles.decoder,
          // Until its first update the policy is what it will be compared with, also where every weight is trained.
          role: roles.role,
          items: referencedItems(planOf(open, part, { settings, objective })),
          microBatchTokens: open.microBatchTokens(name),
          settings,
        });
      const made = objective.needsReference ? PARTS.filter((part) => itemsOf(open, part).length > 0) : [];
      return [
        ...made.map(references),
        {
          name,
          expectedSteps: () => planOf(open, 'train', { settings, objective }).batches.length,
          async prepare() {
            const context = await contextOf(open, 'train');
            const held = await contextOf(open, 'validation');
            return offlineStage({
              ...context,
              name,
              settings,
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
    },
    save: ({ roles, run }) => roles.save((name) => run.file(name)),
    async evaluate(open) {
      const metrics = await heldOutMetrics(await contextOf(open, 'test'));
      const shown = Object.entries(metrics).map(([name, value]) => `${name} ${value.toFixed(4)}`);
      const none = 'there are none in the test part, so nothing was measured';
      return { metrics, summary: `held-out ${kindOf(open.config).noun}: ${shown.join(', ') || none}` };
    },
  };
}

const artefactOf = (part: Part) => `reference-${part}`;

function itemsOf({ config, data }: OfflineRun<OfflineRunConfig>, part: Part): Dataset<OfflineItem> {
  const items = data.items[part];
  if (part === 'train') return items;
  const rankOf = (index: number, seed: number) => itemRank(items.get(index), seed);
  return subset(items, limited(indices(items), config.eval.max_samples, config.data, rankOf));
}

function itemRank({ prompt, answers }: OfflineItem, seed: number): number {
  const texts = answers.map(({ ids }) => ids.join());
  return sampleRanks(seed, prompt.join(), texts).at(-1) as number;
}

function planOf(
  open: OfflineRun<OfflineRunConfig>,
  part: Part,
  { settings, objective }: { readonly settings: AnswerBatchConfig; readonly objective: OfflineObjective },
): OfflinePlan {
  const items = itemsOf(open, part);
  const options = { pairs: objective.needsMismatched, maxLength: open.config.data.max_length };
  if (part !== 'train') return heldOutPlan(items, options);
  return trainingPlan(items, { ...options, settings, seed: open.config.run.seed });
}
