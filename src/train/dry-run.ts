/** `steptrain run --dry-run`: what a run would do, without loading a weight. */
import type { ModelConfig } from '../architectures/config.js';
import { newModelConfig, readModelConfig } from '../architectures/table.js';
import type { FrameConfig, MethodSchema } from '../config/schema.js';
import { PARTS } from '../data/split.js';
import { baseDirectory } from '../models/base.js';
import { StepTrainError } from '../native/errors.js';
import type { StepRecord } from '../records/record.js';
import { configuredRecords } from '../run/parts.js';
import { configuredTokenizer } from '../run/tokenizer.js';
import { openDevice } from '../runtime/device.js';
import { availableMemory, fitMicroBatch, formatMemoryPlan, memoryPlan } from './memory-plan.js';
import type { Method } from './method.js';
import { deviceName } from './recipe.js';

/** Data counts and memory by role, as lines; throws the errors that the run itself would throw. */
export async function describeRun<Config extends FrameConfig>(
  method: Pick<Method<Config>, 'memory'> & Pick<MethodSchema<Config>, 'sections'>,
  config: Config,
): Promise<string[]> {
  const { parts } = await configuredRecords(config.data);
  const lines = ['data:'];
  for (const part of PARTS) lines.push(`  ${part.padEnd(12)}${countSteps(parts[part])}`);
  const device = openDevice(deviceName(config.run.device));
  try {
    const { name, memoryFree } = device.info();
    const plan = memoryPlan(config, method.memory(config), await modelShape(config));
    const available = availableMemory(plan, device);
    const free = (memoryFree / 2 ** 30).toFixed(1);
    lines.push(`memory on ${name} (${free} GiB free):`);
    const sizes: (readonly [string, number])[] = [];
    let refusal = '';
    for (const [section, settings] of Object.entries(method.sections(config))) {
      try {
        sizes.push([section, fitMicroBatch(plan, available, config.data.max_length, settings)]);
      } catch (error) {
        // Reported, not thrown: the plan for a server is often printed on another machine.
        if (!(error instanceof StepTrainError)) throw error;
        sizes.push([section, config.data.max_length]);
        refusal = error.message;
      }
    }
    lines.push(...formatMemoryPlan(plan, Math.max(...sizes.map(([, tokens]) => tokens))));
    if (refusal) lines.push(`it does not fit here: ${refusal}`);
    else
      lines.push(
        `micro-batches: ${sizes.map(([section, tokens]) => `${section} ${tokens} tokens`).join(', ')}`,
      );
    return lines;
  } finally {
    device.dispose();
  }
}

async function modelShape({ model }: FrameConfig): Promise<ModelConfig> {
  if (typeof model.base === 'string') return readModelConfig(baseDirectory(model.base));
  return newModelConfig(model.base.init, (await configuredTokenizer(model)).vocabSize);
}

function countSteps(records: readonly StepRecord[]): string {
  const labels = records.flatMap(({ steps }) => steps.map(({ label }) => label));
  const of = (wanted: 1 | 0 | null) => labels.filter((label) => label === wanted).length;
  const unlabelled = of(null) > 0 ? `, ${of(null)} without a label` : '';
  return `${records.length} solutions, ${of(1)} correct and ${of(0)} wrong steps${unlabelled}`;
}
