/** What a run has to do, told from its data before a weight is loaded: optimizer steps by stage, tokens, and how long at least. */
import type { ModelConfig } from '../architectures/config.js';
import { modelModules } from '../architectures/table.js';
import type { FrameConfig, MethodSchema } from '../config/schema.js';
import { packWeight } from '../ops/gemm.js';
import type { RunDirectory } from '../run/directory.js';
import type { Device } from '../runtime/device.js';
import { formatDuration, formatMetric } from '../terminal/progress.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { fewSteps } from './few-steps.js';
import type { Method, OpenRun, RunData, RunRoles } from './method.js';
import type { StageEntry } from './stage.js';

export interface PlannedWork {
  /** In order; no number where it depends on what an earlier stage makes. */
  readonly stages: readonly { readonly name: string; readonly steps?: number }[];
  /** Stages of so few steps that they teach little, in sentences. */
  readonly fewSteps: readonly string[];
  /** Forward and backward in all stages, without what a model writes itself; undefined where all of it is written. */
  readonly tokens: number | undefined;
}

export interface PlannedRun<Config extends FrameConfig> {
  readonly method: Pick<Method<Config>, 'stages'> & Pick<MethodSchema<Config>, 'sections'>;
  readonly config: Config;
  readonly tokenizer: Tokenizer;
  readonly data: RunData;
  readonly shape: ModelConfig;
  readonly device: Device;
  /** Of a section; as the memory plan has it. */
  readonly microBatchTokens: (section: string) => number;
}

/** The stages are made as the run makes them, but not opened; until then they hold their roles without using them. */
export function plannedWork<Config extends FrameConfig>({
  method,
  data,
  shape,
  ...run
}: PlannedRun<Config>): PlannedWork {
  const { config, device } = run;
  const directory = { path: '', artefact: () => standIn({ path: '' }) } as unknown as RunDirectory;
  const roles = standIn({ decoder: standIn({ config: shape, device }) }) as unknown as RunRoles;
  const open: OpenRun<Config, RunData, RunRoles> = {
    ...run,
    ...{ data, roles, run: directory, cacheBytes: undefined },
  };
  const stages = method.stages(open);
  return {
    stages: stages.map((stage) => {
      const steps = 'steps' in stage ? stage.steps : stage.expectedSteps?.();
      return { name: stage.name, ...(steps === undefined ? {} : { steps }) };
    }),
    fewSteps: stages.flatMap(
      (stage) => ('batching' in stage && !('artefact' in stage) && fewSteps(stage)) || [],
    ),
    tokens: trainedTokens(method.sections(config), data) ?? batchedTokens(stages),
  };
}

/** Of stages whose batches are made of so many tokens; undefined where there is another one that trains. */
function batchedTokens(stages: readonly StageEntry[]): number | undefined {
  let sum = 0;
  for (const stage of stages) {
    if ('artefact' in stage) continue;
    const each = 'steps' in stage ? stage.batching[`${stage.name}.tokens_per_step`] : undefined;
    if (!('steps' in stage) || each === undefined) return undefined;
    sum += stage.steps * each;
  }
  return sum;
}

/** An object of which anything beside what is known may be taken too, and called. */
function standIn(known: object): object {
  const any: object = new Proxy(
    Object.assign(() => any, known),
    { get: (target, key) => (Object.hasOwn(known, key) ? Reflect.get(target, key) : any) },
  );
  return any;
}

/** Keys that sections of training share. */
interface Section {
  readonly num_train_epochs?: number;
  readonly max_steps?: number;
  readonly tokens_per_step?: number;
}

/** The training tokens times the passes of each section, or its max_steps. */
export function trainedTokens(
  sections: Readonly<Record<string, object>>,
  { summary }: Pick<RunData, 'summary'>,
): number | undefined {
  const all = summary.parts.train.lengths?.tokens;
  if (all === undefined) return undefined;
  return Object.values(sections).reduce((sum, section) => sum + tokensOf(section, all), 0);
}

function tokensOf(
  { num_train_epochs: epochs = 0, max_steps = 0, tokens_per_step = 0 }: Section,
  all: number,
): number {
  const passes = epochs * all;
  return max_steps > 0 && tokens_per_step > 0 ? Math.min(passes, max_steps * tokens_per_step) : passes;
}

/** Lines for the dry run. */
export function formatPlannedWork({ stages, fewSteps: few, tokens }: PlannedWork): string[] {
  const width = Math.max(12, ...stages.map(({ name }) => name.length + 2));
  const lines = stages.map(
    ({ name, steps }) => `  ${name.padEnd(width)}${steps ?? 'known once the stages before it have ended'}`,
  );
  lines.unshift('steps:');
  lines.push(...few);
  if (tokens === undefined || tokens === 0) return lines;
  lines.push(`trained tokens: about ${formatMetric(Math.round(tokens))}, without what a model writes itself`);
  return lines;
}

/** Operations of matrix products, in the layers alone: where few tokens are learned, few rows pass through the head. */
export function trainingOperations(
  { tokens }: PlannedWork,
  { lora, shape }: { readonly lora: boolean; readonly shape: ModelConfig },
): number | undefined {
  if (tokens === undefined || tokens === 0) return undefined;
  const weights = modelModules(shape)
    .filter(({ kind }) => kind === 'linear' || kind === 'router')
    .reduce((sum, { shape: [out = 0, width = 0], expert }) => {
      return sum + out * width * (expert ? expert.perToken / expert.count : 1);
    }, 0);
  // Two operations for each weight in the forward, two for the gradient of the input, two for that of a weight that is trained.
  return tokens * weights * (lora ? 4 : 6);
}

/** @param rate of products on the device of the run, in FLOP/s */
export function formatLeastTime(operations: number, rate: number): string {
  return (
    `time: at least ${formatDuration(operations / rate)}, which the products of its layers take at the ${(rate / 1e9).toFixed(0)} GFLOP/s ` +
    'measured just now; no step was measured, as one takes long here'
  );
}

/** Rows and width of the product that is timed, and for how long. */
const [ROWS, WIDTH, MEASURED_MS] = [512, 1024, 200];

/** FLOP/s of products in `dtype`. */
export async function productRate(device: Device, dtype: FrameConfig['model']['dtype']): Promise<number> {
  const x = device.zeros([ROWS, WIDTH], dtype);
  const w = device.zeros([WIDTH, WIDTH], dtype);
  const packed = packWeight(w, dtype);
  const once = () => device.ops.linear({ x, w: packed }).y.dispose();
  try {
    once();
    await device.synchronize();
    const began = performance.now();
    let count = 0;
    for (; performance.now() - began < MEASURED_MS; count++) {
      once();
      await device.synchronize();
    }
    return (2 * ROWS * WIDTH * WIDTH * count) / ((performance.now() - began) / 1000);
  } finally {
    for (const tensor of [x, w, packed]) tensor.dispose();
  }
}
