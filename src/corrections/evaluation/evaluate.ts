/** How a model that corrects itself solves problems: answers, votes, corrections, and what it does after wrong steps. */
import type { Model } from '../../api/model.js';
import type { Problem } from '../../data/benchmarks/problem.js';
import type { CorrectionFormat } from '../../data/corrections/layout.js';
import { correctionWriter } from '../../data/corrections/layout.js';
import { percent } from '../../eval/percent.js';
import { evaluateSolving, type SolvingProgress } from '../../eval/solving/evaluate.js';
import type { StepJudge } from '../../eval/solving/judging.js';
import type { MetricValue } from '../../eval/solving/metrics.js';
import { oracleJudge } from '../../eval/solving/oracle.js';
import type { SolvingReport } from '../../eval/solving/report.js';
import { plainTable } from '../../eval/table.js';
import { Generator } from '../../generate/generator.js';
import { generatorSource } from '../../generate/sample-source.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import { StepSampler, type StepSamplerOptions } from '../sampler.js';
import { type OutputMetrics, outputMetrics } from './outputs.js';
import { type HeldOutStep, type PrefixMetrics, prefixMetrics } from './prefixes.js';

export interface CorrectionEvaluationOptions {
  readonly format: CorrectionFormat & {
    readonly template?: string | undefined;
    readonly chat?: boolean | undefined;
  };
  readonly prompt: StepSamplerOptions['prompt'];
  /** What the problems are solved with beside greedily; 0: nothing. Default 32 samples at temperature 0.7. */
  readonly n?: number;
  readonly temperature?: number;
  readonly maxNewTokens?: number;
  readonly seed?: number;
  readonly maxRows?: number;
  readonly eosTokenIds?: readonly number[];
  /** Says which steps are right. Default: the oracle, where all problems are generated. */
  readonly judge?: StepJudge | undefined;
  /** Whether a correction means the last step or the whole solution so far. Default `step`. */
  readonly scope?: 'step' | 'solution' | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: (progress: SolvingProgress) => void;
}

/** s3c.json. */
export interface CorrectionReport {
  readonly greedy: SolvingReport;
  readonly greedy_corrections: OutputMetrics;
  readonly sampled?: SolvingReport;
  readonly sampled_corrections?: OutputMetrics;
  /** After held-out wrong and right steps; absent where none were given. */
  readonly prefixes?: PrefixMetrics;
  readonly judge?: string;
  /** Greedy, where validation problems were given: what hyperparameters are chosen by. */
  readonly 'validation_pass@1'?: number;
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
  const { format, n = 32, temperature = 0.7, maxNewTokens = 512, seed = 0, maxRows = 64, signal } = options;
  const writer = correctionWriter(format);
  const judge = options.judge ?? (problems.every(({ generated }) => generated) ? oracleJudge : undefined);
  const solve = async (samples: number, of = problems) => {
    const { report, problems: solved } = await evaluateSolving(model, tokenizer, of, {
      template: format.template,
      chat: format.chat,
      n: samples,
      temperature: samples === 1 ? 0 : temperature,
      maxNewTokens,
      seed,
      maxRows,
      ks: samples === 1 ? [1] : [1, samples],
      ...(options.eosTokenIds ? { eosTokenIds: options.eosTokenIds } : {}),
      ...(options.onProgress ? { onProgress: options.onProgress } : {}),
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
      ? await continuedSteps(model, tokenizer, steps, { ...options, maxNewTokens, seed, maxRows })
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
  { decoder, adapter }: Model,
  tokenizer: Tokenizer,
  steps: readonly HeldOutStep[],
  {
    format,
    prompt,
    seed,
    maxRows,
    maxNewTokens,
    eosTokenIds,
    signal,
  }: CorrectionEvaluationOptions & {
    readonly seed: number;
    readonly maxRows: number;
    readonly maxNewTokens: number;
  },
): Promise<PrefixMetrics | undefined> {
  const writer = correctionWriter(format);
  const generator = new Generator(decoder, { maxRows });
  try {
    const source = generatorSource(generator, {
      tokenizer,
      ...(eosTokenIds ? { eosTokenIds } : {}),
      ...(adapter ? { adapter } : {}),
    });
    const { separator } = writer;
    const maxLength = decoder.config.maxPositions;
    const sampler = new StepSampler({ source, tokenizer, prompt, separator, seed, maxLength });
    return await prefixMetrics(steps, sampler, writer, { max_new_tokens: maxNewTokens }, signal);
  } finally {
    generator.dispose();
  }
}

/** The numbers of a report that go into metrics.jsonl. */
export function shortCorrectionMetrics({
  greedy,
  greedy_corrections: own,
  sampled,
  prefixes,
  ...report
}: CorrectionReport): Record<string, number> {
  const votes = Object.entries(sampled?.metrics ?? {}).filter(([name]) => name.startsWith('maj@'));
  const all: Record<string, number | undefined> = {
    'pass@1': greedy.metrics['pass@1']?.value,
    'validation_pass@1': report['validation_pass@1'],
    ...Object.fromEntries(votes.map(([name, { value }]) => [name, value])),
    tokens_a_solution: greedy.metrics.tokens?.value,
    correction_rate: own.correction_rate,
    correction_precision: own.correction_precision,
    wrong_steps: own.wrong_steps,
    trigger_rate: prefixes?.trigger_rate,
    fix_rate: prefixes?.fix_rate,
    false_trigger_rate: prefixes?.false_trigger_rate,
    trigger_difference: prefixes?.trigger_difference.value,
    harm_rate: prefixes?.harm_rate,
  };
  return Object.fromEntries(
    Object.entries(all).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
  );
}

function withInterval(metric: MetricValue | undefined): string {
  if (metric === undefined) return '';
  const { value, interval } = metric;
  if (interval === undefined) return percent(value);
  return `${percent(value)} (${interval.map((end) => percent(end)).join(' to ')})`;
}

/** The table of a report. */
export function formatCorrectionReport(report: CorrectionReport): string {
  const { greedy, sampled, prefixes } = report;
  const value = (of: SolvingReport | undefined, name: string) => of?.metrics[name]?.value;
  const vote = Object.keys(sampled?.metrics ?? {}).find((name) => name.startsWith('maj@'));
  const shown = (number: number | undefined, as: (found: number) => string = percent) =>
    number === undefined ? '' : as(number);
  const fixed = (number: number) => number.toFixed(1);
  const [one, many] = [report.greedy_corrections, report.sampled_corrections];
  const row = (title: string, pick: (of: OutputMetrics) => number | undefined) => [
    title,
    shown(pick(one)),
    many ? shown(pick(many)) : '',
  ];
  const rows = [
    [`${greedy.problems} problems, %`, 'greedy', sampled ? `${sampled.n} samples` : ''],
    ['pass@1', withInterval(greedy.metrics['pass@1']), shown(value(sampled, 'pass@1'))],
    ...(vote ? [[vote, '', shown(value(sampled, vote))]] : []),
    ['tokens a sample', shown(value(greedy, 'tokens'), fixed), shown(value(sampled, 'tokens'), fixed)],
    row('with a correction', ({ correction_rate }) => correction_rate),
    row('corrections of wrong steps', ({ correction_precision }) => correction_precision),
    row('of these, into right ones', ({ repair_rate }) => repair_rate),
    row('of right steps, into wrong ones', ({ harm_rate }) => harm_rate),
    row('wrong among the steps that stand', ({ wrong_steps }) => wrong_steps),
    ...(prefixes
      ? [
          [`after ${prefixes.prefixes} held-out steps`, 'wrong', 'right'],
          ['reflects', percent(prefixes.trigger_rate), percent(prefixes.false_trigger_rate)],
          ['more often after wrong ones by', withInterval(prefixes.trigger_difference), ''],
          ['right final answer', percent(prefixes.fix_rate), percent(prefixes.right_rate)],
          ['reflects, wrong final answer', '', percent(prefixes.harm_rate)],
        ]
      : []),
  ];
  const kinds = (title: string, of: OutputMetrics) => {
    const sorted = Object.entries(of.errors).sort(([, a], [, b]) => b - a);
    return sorted.length === 0 ? [] : [`${title}: ${sorted.map(([kind, n]) => `${kind} ${n}`).join(', ')}`];
  };
  return [
    plainTable(rows.map((cells) => cells.map((cell) => cell ?? ''))),
    ...kinds('errors that stand, greedy', one),
    ...(many ? kinds('errors that stand, sampled', many) : []),
    ...(report.judge ? [`steps judged by ${report.judge}`] : []),
  ].join('\n');
}
