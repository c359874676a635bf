// The configuration of a run. A method is a row of `methods`: the sections it reads, nothing else.
import { z } from 'zod';
import { data, prompt } from './data.js';
import { lora, model } from './model.js';
import { ablation, baseline, constraint, dpo, frn, ppo } from './stepamc.js';
import { answerEvaluation, pretrain, run, sft, verdictEvaluation } from './training.js';

const methods = {
  sft: z.strictObject({
    method: z.literal('sft').describe('The training method.'),
    model,
    lora,
    data,
    prompt,
    sft,
    run,
    eval: verdictEvaluation,
  }),
  stepamc: z.strictObject({
    method: z.literal('stepamc').describe('The training method.'),
    model,
    lora,
    data,
    prompt,
    sft,
    frn,
    ppo,
    constraint,
    ablation,
    baseline,
    dpo,
    run,
    eval: verdictEvaluation,
  }),
  pretrain: z.strictObject({
    method: z.literal('pretrain').describe('The training method.'),
    model,
    data,
    pretrain,
    run,
    eval: answerEvaluation,
  }),
} as const;

export type Method = keyof typeof methods;

export type SftRunConfig = z.output<(typeof methods)['sft']>;
export type StepAmcRunConfig = z.output<(typeof methods)['stepamc']>;
export type PretrainRunConfig = z.output<(typeof methods)['pretrain']>;

/** The merged and complete configuration of a run; `method` tells which sections it has. */
export type RunConfig = SftRunConfig | StepAmcRunConfig | PretrainRunConfig;

/** What a recipe may leave out. */
export type RunConfigInput = { readonly [M in Method]: z.input<(typeof methods)[M]> }[Method];

export type ModelConfig = RunConfig['model'];
export type LoraConfig = Exclude<SftRunConfig['lora'], 'none'>;
export type DataConfig = RunConfig['data'];
export type PromptConfig = SftRunConfig['prompt'];
export type FrnConfig = StepAmcRunConfig['frn'];
export type PpoConfig = StepAmcRunConfig['ppo'];
export type ConstraintConfig = StepAmcRunConfig['constraint'];
export type EvaluationConfig = SftRunConfig['eval'];
/** The keys that every training method shares: schedule, batch, AdamW, evaluation and checkpoints. */
export type OptimizationConfig = Omit<SftRunConfig['sft'], 'class_weight'>;

export const methodNames = Object.keys(methods) as Method[];

export function isMethod(value: unknown): value is Method {
  return typeof value === 'string' && Object.hasOwn(methods, value);
}

export function methodSchema(method: Method): z.ZodType<RunConfig> {
  return methods[method];
}
