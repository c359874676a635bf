/** `method: sft`: supervised fine-tuning on the verdict after each step. */
import type { TrainableParameters } from '../autograd/parameters.js';
import type { SftRunConfig } from '../config/schema.js';
import { configuredTokenizer } from '../run/tokenizer.js';
import type { RunContext } from './context.js';
import { runStages } from './engine.js';
import { finalEvaluation, shortFigures, validationFigures } from './evaluation.js';
import { writeHeldMemory } from './held-memory.js';
import { settleMicroBatch } from './memory-plan.js';
import { reportData } from './notes.js';
import type { RunResult } from './result.js';
import { supervisedStage } from './supervised.js';
import { createTrainee } from './trainee.js';
import { verdictData } from './verdict-data.js';

export async function runSft(context: RunContext<SftRunConfig>): Promise<RunResult> {
  const { config, device, run, signal } = context;
  const tokenizer = await configuredTokenizer(config.model);
  const data = await verdictData(config, tokenizer, signal);
  if (!data) return { status: 'interrupted', step: 0 };
  reportData(data);
  const trainee = await createTrainee(device, {
    model: config.model,
    lora: config.lora,
    tokenizer,
    seed: config.run.seed,
    gradientCheckpointing: config.run.gradient_checkpointing,
  });
  try {
    const { decoder, role } = trainee;
    const parameters: TrainableParameters = trainee.parameters;
    const microBatchTokens = settleMicroBatch(config, 'sft', config.sft, {
      device,
      decoder: decoder.config,
      saved: context.savedPlan,
    });
    const evaluation = { config, decoder, data, run, microBatchTokens };
    const stage = supervisedStage({
      name: 'sft',
      decoder,
      role,
      parameters,
      sequences: data.sequences.train,
      optimization: config.sft,
      microBatchTokens,
      best: 'f1_macro',
      seed: config.run.seed,
      validate: (stop) => validationFigures(evaluation, role, stop),
    });
    await writeHeldMemory(run, config, decoder, trainee.held);
    const result = await runStages([stage], { policy: parameters }, context.engine);
    if (result.status === 'finished' || context.outOfTime()) await trainee.save((name) => run.file(name));
    if (result.status === 'interrupted') return result;
    const report = await finalEvaluation(
      evaluation,
      role,
      {},
      { data: { trained_tokens: result.tokens } },
      signal,
    );
    if (!report) return { status: 'interrupted', step: result.step };
    run.metrics.append({ step: result.step, phase: 'test', ...shortFigures(report.metrics) });
    return { ...result, evaluation: report };
  } finally {
    trainee.dispose();
    data.close();
  }
}
