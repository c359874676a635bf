/**
 * Evaluates a model that corrects itself on problems: answers, votes, corrections, and its continuations of wrong
 * steps.
 */
import type { Model } from '../../api/model.js';
import type { Problem } from '../../data/benchmarks/problem.js';
import type { CorrectionFormat } from '../../data/corrections/layout.js';
import { correctionWriter } from '../../data/corrections/layout.js';
import type { CorrectionScope } from '../../data/corrections/standing.js';
import type { CorrectionReport, PrefixMetrics } from '../../eval/solving/corrections.js';
import { evaluateSolving, type SolvingOptions } from '../../eval/solving/evaluate-solving.js';
import { Generator } from '../../generate/generator.js';
import { generatorSource } from '../../generate/sample-source.js';
import { oracleScorer } from '../../scoring/oracle.js';
import type { Scorer } from '../../scoring/scorer.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import { StepSampler, type StepSamplerOptions } from '../sampler.js';
import { outputMetrics } from './outputs.js';
import { type HeldOutStep, prefixMetrics } from './prefixes.js';

export interface CorrectionEvaluationOptions
  extends Pick<
    SolvingOptions,
    'maxNewTokens' | 'seed' | 'maxRows' | 'eosTokenIds' | 'signal' | 'onProgress'
  > {
  readonly format: CorrectionFormat & {
    readonly template?: string | undefined;
    readonly chat?: boolean | undefined;
  };
  readonly prompt: StepSamplerOptions['prompt'];
  /** Number of samples in addition to the greedy solution; 0: none. Default 32, at temperature 0.7. */
  readonly n?: number;
  readonly temperature?: number;
  /** Says which steps are right. Default: the oracle, where all problems are generated. */
  readonly judge?: Scorer | undefined;
  /** Whether a correction means the last step or the whole solution so far. Default `step`. */
  readonly scope?: CorrectionScope | undefined;
}

/** @throws as `evaluateSolving` does; the signal's reason where it was aborted */
export async function evaluateCorrections(
  model: Model,
  tokenizer: Tokenizer,
  {
    problems,
    steps,
    validation = [],
  }: {
    readonly problems: readonly Problem[];
    readonly steps: readonly HeldOutStep[];
    readonly validation?: readonly Problem[];
  },
  options: CorrectionEvaluationOptions,
): Promise<CorrectionReport> {
  const { format, n = 32, temperature = 0.7, maxNewTokens = 512, seed = 0, signal } = options;
  const { maxRows } = options;
  const writer = correctionWriter(format);
  const judge = options.judge ?? (problems.every(({ generated }) => generated) ? oracleScorer : undefined);
  const solve = async (samples: number, of = problems) => {
    const { report, problems: solved } = await evaluateSolving(model, tokenizer, of, {
      template: format.template,
      chat: format.chat,
      n: samples,
      temperature: samples === 1 ? 0 : temperature,
      maxNewTokens,
      seed,
      ...(maxRows === undefined ? {} : { maxRows }),
      ks: samples === 1 ? [1] : [1, samples],
      ...(options.eosTokenIds ? { eosTokenIds: options.eosTokenIds } : {}),
      ...(options.onProgress ? { onProgress: options.onProgress } : {}),
      judge,
      corrections: { format, scope: options.scope },
      signal,
    });
    return {
      report,
      corrections: await outputMetrics(solved, writer, { judge, scope: options.scope, signal }),
    };
  };
  const greedy = await solve(1);
  const sampled = n > 1 ? await solve(n) : undefined;
  const prefixes =
    steps.length > 0
      ? await continuedSteps(model, tokenizer, steps, { ...options, maxNewTokens, seed })
      : undefined;
  const held = validation.length > 0 ? await solve(1, validation) : undefined;
  signal?.throwIfAborted();
  return {
    greedy: greedy.report,
    greedy_corrections: greedy.corrections,
    ...(sampled ? { sampled: sampled.report, sampled_corrections: sampled.corrections } : {}),
    ...(prefixes ? { prefixes } : {}),
    ...(judge ? { judge: judge.name } : {}),
    ...(held ? { 'validation_pass@1': held.report.metrics['pass@1']?.value ?? 0 } : {}),
  };
}

async function continuedSteps(
  model: Model,
  tokenizer: Tokenizer,
  steps: readonly HeldOutStep[],
  {
    format,
    prompt,
    seed,
    maxRows,
    maxNewTokens,
    eosTokenIds = model.endTokens(tokenizer),
    signal,
  }: CorrectionEvaluationOptions & {
    readonly seed: number;
    readonly maxNewTokens: number;
  },
): Promise<PrefixMetrics | undefined> {
  const { decoder, adapter } = model;
  const writer = correctionWriter(format);
  using generator = new Generator(decoder, maxRows === undefined ? {} : { maxRows });
  const source = generatorSource(generator, {
    tokenizer,
    eosTokenIds,
    ...(adapter ? { adapter } : {}),
  });
  const { separator } = writer;
  const maxLength = decoder.config.maxPositions;
  const sampler = new StepSampler({ source, tokenizer, prompt, separator, seed, maxLength });
  return await prefixMetrics(steps, sampler, writer, { max_new_tokens: maxNewTokens }, signal);
}
