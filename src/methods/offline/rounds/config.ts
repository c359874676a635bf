// The common configuration of methods that can learn in rounds.
import { existsSync, realpathSync } from 'node:fs';
import { resolve, sep } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { z } from 'zod';
import {
  type AnswerBatchConfig,
  type Conflict,
  conflict,
  type FrameConfig,
  type LoraConfig,
  withoutEffect,
} from '../../../config/schema.js';
import { areWordProblems } from '../../../data/generated.js';
import {
  endpoint,
  judge as judgeSection,
  sampling as samplingSection,
  solvingEvaluation,
} from './sections.js';

/** Round settings of a method's own section. */
export interface RoundSettings extends AnswerBatchConfig {
  /** 0: no rounds, but one training on the answers of the data. */
  readonly iterations: number;
  readonly reference: 'previous' | 'm0';
}

export interface RoundsConfig extends FrameConfig {
  readonly lora: LoraConfig | 'none';
  readonly question: { readonly template: string };
  readonly sampling: z.output<typeof samplingSection>;
  readonly judge: z.output<typeof judgeSection>;
  readonly eval_solving: z.output<typeof solvingEvaluation>;
}

/** Keys that are refused without rounds. */
const OF_ROUNDS: Readonly<Record<'judge' | 'sampling', readonly string[]>> = {
  judge: ['outcome', 'flip', 'control'],
  sampling: ['balance_per_problem', 'drop_unanimous'],
};

/** @param withoutRounds of a method whose own samples are nothing to learn from, why */
export function* roundConflicts(
  { method, judge, sampling, eval_solving: evaluation, data, model }: RoundsConfig,
  { iterations }: RoundSettings,
  withoutRounds?: string,
): Generator<Conflict> {
  if (iterations > 0 && withoutRounds !== undefined)
    yield conflict(`${method}.iterations`, `method ${method} has no rounds: ${withoutRounds}`);
  if ((iterations > 0 || evaluation.solve) && typeof model.base !== 'string')
    yield conflict(
      'model.base',
      iterations > 0
        ? `sampling needs a model that can solve problems: name a trained base, or set ${method}.iterations to 0`
        : 'eval_solving.solve needs a model that can solve problems: name a trained base',
    );
  const judging = evaluation.solve || iterations > 0;
  for (const [section, kind, key] of [
    ...(iterations > 0 ? [['judge', judge.kind, 'kind'] as const] : []),
    ...(judging ? [['eval_solving', evaluation.judge, 'judge'] as const] : []),
  ]) {
    if (kind === 'reference' && areWordProblems(data.source))
      yield conflict(
        `${section}.${key}`,
        'the reference is the worked solution of rows, and generated problems have a plan in its place; use "oracle"',
      );
    if (kind === 'oracle' && !areWordProblems(data.source))
      yield conflict(
        `${section}.${key}`,
        `the oracle judges generated problems alone (data.source word_problems), found data.source ${JSON.stringify(data.source)}`,
      );
  }
  if (judging && evaluation.judge === 'run' && evaluation.judge_run === undefined)
    yield conflict(
      'eval_solving.judge_run',
      'eval_solving.judge "run" needs eval_solving.judge_run, the directory of that run',
    );
  if (judging && evaluation.judge === 'file' && evaluation.judge_file === undefined)
    yield conflict(
      'eval_solving.judge_file',
      'eval_solving.judge "file" needs eval_solving.judge_file, records with labels',
    );
  if (judge.outcome === 'clean' && judge.kind === 'none')
    yield conflict(
      'judge.outcome',
      'judge.outcome "clean" asks for labels of steps, and judge.kind "none" gives none',
    );
  if (iterations === 0) {
    const usual = { judge: judgeSection.parse({}), sampling: samplingSection.parse({}) };
    for (const section of ['judge', 'sampling'] as const) {
      const own: Readonly<Record<string, unknown>> = { judge, sampling }[section];
      const defaults: Readonly<Record<string, unknown>> = usual[section];
      for (const key of OF_ROUNDS[section])
        if (own[key] !== defaults[key])
          yield conflict(
            `${section}.${key}`,
            `${section}.${key} is about candidates of a round, and ${method}.iterations is 0; remove it, or set iterations`,
          );
    }
    return;
  }
  if ((judge.kind === 'run' || judge.kind === 'file') && judge.path === undefined)
    yield conflict('judge.path', `judge.kind "${judge.kind}" needs judge.path`);
  const same = sameJudge(judge, evaluation);
  if (same)
    yield conflict(
      same.key,
      `${same.who} labels the training data and would judge its own lessons: what it calls right by mistake the policy learns, ` +
        'and the figures would not show it; evaluate with another judge, such as "oracle", or with "none"',
    );
}

/** The kinds of judge that read a key, of those that not every kind reads. */
const READ_BY: Readonly<Record<string, readonly string[]>> = {
  ...Object.fromEntries(Object.keys(endpoint).map((key) => [key, ['llm']])),
  path: ['run', 'file'],
  completions: ['completions'],
  judge_run: ['run'],
  judge_file: ['file'],
  llm: ['llm'],
};

/**
 * Keys for another kind of judge than the configured one, and those of rounds where there are none. A recipe that this one extends may have them, so none is
 * refused.
 */
export function* unreadRoundKeys(config: RoundsConfig, { iterations }: RoundSettings): Generator<Conflict> {
  const { method, judge: labels, sampling: sampled, eval_solving: evaluation } = config;
  const usual = {
    judge: judgeSection.parse({}),
    sampling: samplingSection.parse({}),
    evaluation: solvingEvaluation.parse({}),
  };
  if (iterations > 0) yield* unread('judge.kind', labels, usual.judge);
  if (iterations > 0 || evaluation.solve) yield* unread('eval_solving.judge', evaluation, usual.evaluation);
  if (iterations > 0) return;
  const why = `${method}.iterations is 0`;
  yield* withoutEffect('judge', labels, {
    keys: (Object.keys(labels) as (keyof typeof labels)[]).filter((key) => !OF_ROUNDS.judge.includes(key)),
    defaults: usual.judge,
    why: `${why}, and the labels are those of the data`,
  });
  // The evaluation draws its samples alike, but not as many.
  yield* withoutEffect('sampling', sampled, {
    keys: evaluation.solve
      ? ['num_generations', 'problems_per_iteration', 'fresh_problems', 'dedupe']
      : (Object.keys(sampled) as (keyof typeof sampled)[]).filter((key) => !OF_ROUNDS.sampling.includes(key)),
    defaults: usual.sampling,
    why: evaluation.solve
      ? `${why}, and it is about candidates of a round`
      : `${why}, and eval_solving.solve is false`,
  });
  if (!evaluation.solve)
    yield* withoutEffect('eval_solving', evaluation, {
      keys: Object.keys(evaluation) as (keyof typeof evaluation)[],
      defaults: usual.evaluation,
      why: `${why}, and eval_solving.solve is false`,
    });
}

function* unread(chooser: string, section: object, defaults: object): Generator<Conflict> {
  const [name, key] = chooser.split('.') as [string, string];
  const kind = (section as Readonly<Record<string, string>>)[key] as string;
  const usual = defaults as Readonly<Record<string, unknown>>;
  for (const [other, value] of Object.entries(section)) {
    const kinds = READ_BY[other];
    if (!kinds || kinds.includes(kind) || isDeepStrictEqual(value, usual[other])) continue;
    yield conflict(
      `${name}.${other}`,
      `${name}.${other} is for ${chooser} ${kinds.map((each) => `"${each}"`).join(' or ')}, and ${chooser} is "${kind}": it is not read`,
    );
  }
}

/** The judge that labels, where it would evaluate too, with the key that names it. */
function sameJudge(
  judge: RoundsConfig['judge'],
  { judge: kind, judge_run, judge_file, llm }: RoundsConfig['eval_solving'],
): { readonly key: string; readonly who: string } | undefined {
  if (judge.kind !== kind) return undefined;
  if (kind === 'llm')
    return judge.model === llm.model && judge.url === llm.url
      ? { key: 'eval_solving.llm.model', who: `the model ${JSON.stringify(llm.model)} at ${llm.url}` }
      : undefined;
  if (kind !== 'run' && kind !== 'file') return undefined;
  const path = kind === 'run' ? judge_run : judge_file;
  return isSameRun(judge.path, path) ? { key: `eval_solving.judge_${kind}`, who: String(path) } : undefined;
}

/** Whether two paths lead to one place, however they are written: a file, a run, or the model that is in it. */
function isSameRun(one = '', other = ''): boolean {
  const placeOf = (path: string) => `${existsSync(path) ? realpathSync(path) : resolve(path)}${sep}`;
  const [a, b] = [placeOf(one), placeOf(other)];
  return a.startsWith(b) || b.startsWith(a);
}
