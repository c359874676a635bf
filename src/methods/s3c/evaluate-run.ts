/** The evaluation of a run on its test part: answers, corrections, and what follows held-out wrong and right steps. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { Model } from '../../api/model.js';
import { evaluateCorrections } from '../../corrections/evaluation/evaluate-corrections.js';
import { type HeldOutStep, heldOutStep } from '../../corrections/evaluation/prefixes.js';
import type { SourceSolution } from '../../corrections/solution.js';
import type { Problem } from '../../data/benchmarks/problem.js';
import { loadRecords } from '../../data/load.js';
import type { CorrectionReport } from '../../eval/solving/corrections.js';
import type { StepRecord } from '../../records/record.js';
import { problemText } from '../../records/same-text.js';
import { readLog } from '../../run/log-file.js';
import { referenceScorer } from '../../scoring/reference.js';
import { endTokens } from '../../tokenizer/reply-end.js';
import { correctionReading } from './config.js';
import type { S3cRun } from './making.js';
import type { CorrectionSamples } from './samples.js';
import { correctionPrompt, promptLead } from './sequences.js';

/** Undefined where the test part has no problem with an answer, or the signal stopped it. */
export async function evaluateRun(
  { config, data, roles, tokenizer }: S3cRun,
  { test, problems: ofRecords }: CorrectionSamples,
  signal: AbortSignal,
): Promise<CorrectionReport | undefined> {
  const { format, corrections, eval: evaluation, eval_sampling: settings, run } = config;
  const limit = evaluation.max_samples === 'all' ? Number.POSITIVE_INFINITY : evaluation.max_samples;
  const made = 'solutions' in data.given ? data.given.solutions : undefined;
  const problems = made
    ? eachOnce(made.test.map(asProblem))
    : ofRecords.map(({ problem, gold_answer: answer = '' }) => ({ problem, answer }));
  if (problems.length === 0) return undefined;
  const { decoder, role } = roles;
  const eosTokenIds = endTokens(decoder.config, tokenizer);
  const prompt = correctionPrompt(tokenizer, format);
  try {
    return await evaluateCorrections(
      new Model(decoder, role.adapter, eosTokenIds),
      tokenizer,
      {
        problems: problems.slice(0, limit),
        validation: eachOnce((made?.validation ?? []).map(asProblem)).slice(0, limit),
        steps: test.flatMap((record) => heldOutStep(record) ?? []).slice(0, limit),
      },
      {
        format: { ...format, chat: prompt.chat },
        prompt: { tokens: prompt.tokens, lead: promptLead(prompt) },
        n: settings.num_samples,
        temperature: settings.temperature,
        maxNewTokens: settings.max_new_tokens,
        seed: run.seed,
        eosTokenIds,
        scope: correctionReading(config).scope,
        // Whoever said which samples are wrong says it of solutions, too.
        ...(corrections !== 'none' && corrections.validate.by === 'reference'
          ? { judge: referenceScorer }
          : {}),
        signal,
      },
    );
  } catch (error) {
    if (signal.aborted) return undefined;
    throw error;
  }
}

function asProblem({ problem, answer, steps, record, word }: SourceSolution): Problem {
  const solution = record.gold_solution ?? steps.join('\n');
  return { problem, answer, solution, ...(word ? { generated: word } : {}) };
}

/** Data may have several solutions of a problem, which is asked once. */
export function eachOnce(problems: readonly Problem[]): Problem[] {
  return [...new Map(problems.map((each) => [problemText(each.problem), each])).values()];
}

/** Held-out wrong steps for an evaluation of `run`: those of a file, else those that the run made of its test part. */
export async function heldOutSteps(run: string, file: string | undefined): Promise<HeldOutStep[]> {
  if (file !== undefined) {
    const records: StepRecord[] = [];
    for await (const record of loadRecords(file, { source: 'record' }).records) records.push(record);
    return records.flatMap((record) => heldOutStep(record) ?? []);
  }
  const made = join(run, 'artefacts', 'samples.jsonl');
  if (!existsSync(made)) return [];
  return readLog(made).flatMap((row) => {
    const { part, record } = row as unknown as { readonly part: string; readonly record: StepRecord };
    return part === 'test' ? (heldOutStep(record) ?? []) : [];
  });
}
