/**
 * The work of a run, computed from its data before a weight is loaded: optimizer steps by stage, tokens, and the least
 * time.
 */

import type { ModelConfig } from '../../architectures/config.js';
import { modelModules } from '../../architectures/table.js';
import type { FrameConfig } from '../../config/schema.js';
import { packWeight } from '../../ops/gemm.js';
import type { RunDirectory } from '../../run/directory.js';
import type { Device } from '../../runtime/device.js';
import { formatDuration, formatMetric } from '../../terminal/progress.js';
import { formatTable } from '../../terminal/table.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { Method, OpenRun, RunData, RunRoles } from '../method.js';
import type { StageEntry } from '../stage.js';
import { fewSteps } from './few-steps.js';

export interface PlannedWork {
  /** Stages in order; without a number where it depends on rows of an earlier stage. */
  readonly stages: readonly { readonly name: string; readonly steps?: number }[];
  /** Stages of so few steps that they teach little, in sentences. */
  readonly fewSteps: readonly string[];
  /** Forward and backward in all stages but those of `untold`. */
  readonly tokens: number;
  /** Stages that train on rows of the run itself, so that the data do not determine their tokens. */
  readonly untold: readonly string[];
  /** Says whether `run.max_tokens` ends the run before all steps. */
  readonly sooner?: string;
}

export interface PlannedRun<Config extends FrameConfig> {
  readonly method: Pick<Method<Config>, 'stages'>;
  readonly config: Config;
  readonly tokenizer: Tokenizer;
  readonly data: RunData;
  readonly shape: ModelConfig;
  readonly device: Device;
  /** Micro-batch of a section, as in the memory plan. */
  readonly microBatchTokens: (section: string) => number;
}

/** The stages are made as the run makes them, but not opened; until then they hold their roles without using them. */
export function plannedWork<Config extends FrameConfig>({
  method,
  data,
  shape,
  ...run
}: PlannedRun<Config>): PlannedWork {
  const { device } = run;
  const directory = { path: '', artefact: () => standIn({ path: '' }) } as unknown as RunDirectory;
  const roles = standIn({ decoder: standIn({ config: shape, device }) }) as unknown as RunRoles;
  const open: OpenRun<Config, RunData, RunRoles> = {
    ...run,
    ...{ data, roles, run: directory, cacheBytes: undefined },
  };
  const stages = method.stages(open);
  const { max_tokens: most } = run.config.run;
  const tokens = stages.reduce((sum, stage) => sum + (trainedTokens(stage) ?? 0), 0);
  const untold = stages.filter((stage) => trainedTokens(stage) === undefined).map(({ name }) => name);
  const isCut = most > 0 && tokens - Math.max(0, ...stages.map(tokensOfStep)) >= most;
  return {
    stages: stages.map((stage) => {
      const steps = plannedSteps(stage);
      return { name: stage.name, ...(steps === undefined ? {} : { steps }) };
    }),
    fewSteps: stages.flatMap(
      (stage) => ('batching' in stage && !('artefact' in stage) && fewSteps(stage)) || [],
    ),
    tokens: Math.min(most || Number.POSITIVE_INFINITY, tokens),
    untold,
    ...(isCut || (most > 0 && untold.length > 0)
      ? {
          sooner: `run.max_tokens ${most} ${isCut ? 'ends' : 'may end'} the run before these steps, and before the time of all`,
        }
      : {}),
  };
}

const plannedSteps = (stage: StageEntry) => ('steps' in stage ? stage.steps : stage.expectedSteps?.());

/** The mean; 0 if the data do not determine it. */
const tokensOfStep = (stage: StageEntry) =>
  (trainedTokens(stage) ?? 0) / Math.max(1, plannedSteps(stage) ?? 1);

/** Undefined if the data do not determine it. */
const trainedTokens = (stage: StageEntry) => ('artefact' in stage ? 0 : stage.expectedTokens?.());

/** An object that also has any unknown member, which may be called. */
function standIn(known: object): object {
  const any: object = new Proxy(
    Object.assign(() => any, known),
    { get: (target, key) => (Object.hasOwn(known, key) ? Reflect.get(target, key) : any) },
  );
  return any;
}

/** Lines for the dry run. */
export function formatPlannedWork({ stages, fewSteps: few, ...work }: PlannedWork): string[] {
  const rows = stages.map(({ name, steps }) => [
    name,
    String(steps ?? 'known once the stages before it have ended'),
  ]);
  const table = formatTable(rows, { isLeft: () => true, indent: 2 });
  const { sooner } = work;
  return [
    'steps:',
    ...table.split('\n'),
    ...few,
    `trained tokens: ${formatTokens(work)}`,
    ...(sooner === undefined ? [] : [sooner]),
  ];
}

/** The trained tokens, as the end of a sentence. */
function formatTokens({ tokens, untold }: Pick<PlannedWork, 'tokens' | 'untold'>): string {
  const known = `about ${formatMetric(Math.round(tokens))}`;
  if (untold.length === 0) return tokens === 0 ? 'none' : known;
  const made = `those of ${untold.join(', ')}, which learns from what the run makes itself`;
  return tokens === 0 ? `not known before: ${made}` : `${known}, without ${made}`;
}

/** Operations of matrix products, in the layers alone: where few tokens are learned, few rows pass through the head. */
export function trainingOperations(
  { tokens }: PlannedWork,
  { lora, shape }: { readonly lora: boolean; readonly shape: ModelConfig },
): number | undefined {
  if (tokens === 0) return undefined;
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
