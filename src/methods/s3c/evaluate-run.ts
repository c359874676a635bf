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
import { defined } from '../../native/defined.js';
import { plural } from '../../native/shown.js';
import type { StepRecord } from '../../records/record.js';
import { problemText } from '../../records/same-text.js';
import { RunError } from '../../run/error.js';
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
    : ofRecords.map(({ problem, gold_answer: answer = '', group }) =>
        defined<Problem>({ problem, answer, group }),
      );
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
  return defined<Problem>({ problem, answer, solution, generated: word, group: record.group });
}

/** Data may have several solutions of a problem, which is asked once. */
export function eachOnce(problems: readonly Problem[]): Problem[] {
  const first = new Map<string, Problem>();
  for (const each of problems) {
    const key = problemText(each.problem);
    if (!first.has(key)) first.set(key, each);
  }
  return [...first.values()];
}

/** Held-out wrong steps for an evaluation of `run`: those of a file, else those that the run made of its test part. */
export async function heldOutSteps(run: string, file: string | undefined): Promise<HeldOutStep[]> {
  if (file !== undefined) {
    const records: StepRecord[] = [];
    for await (const record of loadRecords(file, { source: 'record' }).records) records.push(record);
    const steps = records.flatMap((record) => heldOutStep(record) ?? []);
    if (steps.length > 0) return steps;
    throw new RunError(
      `${file} has no held-out wrong step: none of its ${plural(records.length, 'record')} is a solution with a correction, as data s3c writes them`,
    );
  }
  const made = join(run, 'artefacts', 'samples.jsonl');
  if (!existsSync(made)) return [];
  return readLog(made).flatMap((row) => {
    const { part, record } = row as unknown as { readonly part: string; readonly record: StepRecord };
    return part === 'test' ? (heldOutStep(record) ?? []) : [];
  });
}
