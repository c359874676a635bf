// What the configurations of methods that can learn in rounds have in common.
import { existsSync, realpathSync } from 'node:fs';
import { resolve, sep } from 'node:path';
import type { z } from 'zod';
import type { AnswerBatchConfig, Conflict, FrameConfig, LoraConfig } from '../../../config/schema.js';
import type { judge, sampling, solvingEvaluation } from './sections.js';

/** Of a method's own section. */
export interface RoundSettings extends AnswerBatchConfig {
  /** 0: no rounds, but one training on the answers of the data. */
  readonly iterations: number;
  readonly reference: 'previous' | 'm0';
}

export interface RoundsConfig extends FrameConfig {
  readonly lora: LoraConfig | 'none';
  readonly question: { readonly template: string };
  readonly sampling: z.output<typeof sampling>;
  readonly judge: z.output<typeof judge>;
  readonly eval_solving: z.output<typeof solvingEvaluation>;
}

/** @param withoutRounds of a method whose own samples are nothing to learn from, why */
export function roundConflicts(
  { method, judge, sampling, eval_solving: evaluation, data, model }: RoundsConfig,
  { iterations }: RoundSettings,
  withoutRounds?: string,
): Conflict[] {
  const found: Conflict[] = [];
  const add = (path: readonly string[], message: string) => found.push({ path, message });
  if (iterations > 0 && withoutRounds !== undefined)
    add([method, 'iterations'], `method ${method} has no rounds: ${withoutRounds}`);
  if ((iterations > 0 || evaluation.solve) && typeof model.base !== 'string')
    add(
      ['model', 'base'],
      iterations > 0
        ? `sampling needs a model that can solve problems: name a trained base, or set ${method}.iterations to 0`
        : 'eval_solving.solve needs a model that can solve problems: name a trained base',
    );
  const judging = evaluation.solve || iterations > 0;
  for (const [section, kind, key] of [
    ...(iterations > 0 ? [['judge', judge.kind, 'kind'] as const] : []),
    ...(judging ? [['eval_solving', evaluation.judge, 'judge'] as const] : []),
  ]) {
    if (kind === 'oracle' && data.source !== 'word_problems')
      add(
        [section, key],
        `the oracle judges generated problems alone (data.source word_problems), found data.source ${JSON.stringify(data.source)}`,
      );
  }
  if (judging && evaluation.judge === 'run' && evaluation.judge_run === undefined)
    add(
      ['eval_solving', 'judge_run'],
      'eval_solving.judge "run" needs eval_solving.judge_run, the directory of that run',
    );
  if (judging && evaluation.judge === 'file' && evaluation.judge_file === undefined)
    add(
      ['eval_solving', 'judge_file'],
      'eval_solving.judge "file" needs eval_solving.judge_file, records with labels',
    );
  if (judge.outcome === 'clean' && judge.kind === 'none')
    add(
      ['judge', 'outcome'],
      'judge.outcome "clean" asks for labels of steps, and judge.kind "none" gives none',
    );
  if (iterations === 0) {
    const idle = [
      ['judge', 'outcome', judge.outcome !== 'answer'],
      ['judge', 'flip', judge.flip > 0],
      ['sampling', 'balance_per_problem', sampling.balance_per_problem],
      ['sampling', 'drop_unanimous', sampling.drop_unanimous],
    ] as const;
    for (const [section, key, isSet] of idle)
      if (isSet)
        add(
          [section, key],
          `${section}.${key} is about candidates of a round, and ${method}.iterations is 0; remove it, or set iterations`,
        );
    return found;
  }
  if ((judge.kind === 'run' || judge.kind === 'file') && judge.path === undefined)
    add(['judge', 'path'], `judge.kind "${judge.kind}" needs judge.path`);
  const same = sameJudge(judge, evaluation);
  if (same) {
    add(
      same.path,
      `${same.who} labels the training data and would judge its own lessons: what it calls right by mistake the policy learns, ` +
        'and the figures would not show it; evaluate with another judge, such as "oracle", or with "none"',
    );
  }
  return found;
}

/** The judge that labels, where it would evaluate too. */
function sameJudge(
  judge: RoundsConfig['judge'],
  evaluation: RoundsConfig['eval_solving'],
): { readonly path: readonly string[]; readonly who: string } | undefined {
  if (judge.kind !== evaluation.judge) return undefined;
  const { judge_run, judge_file, llm } = evaluation;
  switch (judge.kind) {
    case 'run':
      return isSameRun(judge.path, judge_run)
        ? { path: ['eval_solving', 'judge_run'], who: String(judge_run) }
        : undefined;
    case 'file':
      return isSameRun(judge.path, judge_file)
        ? { path: ['eval_solving', 'judge_file'], who: String(judge_file) }
        : undefined;
    case 'llm':
      return judge.model === llm.model && judge.url === llm.url
        ? {
            path: ['eval_solving', 'llm', 'model'],
            who: `the model ${JSON.stringify(llm.model)} at ${llm.url}`,
          }
        : undefined;
    default:
      return undefined;
  }
}

/** Whether two paths lead to one place, however they are written: a file, a run, or the model that is in it. */
function isSameRun(one = '', other = ''): boolean {
  const placeOf = (path: string) => `${existsSync(path) ? realpathSync(path) : resolve(path)}${sep}`;
  const [a, b] = [placeOf(one), placeOf(other)];
  return a.startsWith(b) || b.startsWith(a);
}
