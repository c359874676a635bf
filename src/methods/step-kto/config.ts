// `method: step_kto`: how it is configured.
import { existsSync, realpathSync } from 'node:fs';
import { resolve } from 'node:path';
import { z } from 'zod';
import { data } from '../../config/data.js';
import { lora, model } from '../../config/model.js';
import { question } from '../../config/question.js';
import { run } from '../../config/run.js';
import type { Conflict, MethodSchema } from '../../config/schema.js';
import { wholeSolutions } from '../../config/whole-solutions.js';
import { loneBatch } from '../offline/config.js';
import { evaluation, judge, sampling, stepKto } from './sections.js';

const schema = z.strictObject({
  method: z.literal('step_kto').describe('The training method.'),
  model,
  lora,
  data,
  question,
  sampling,
  judge,
  step_kto: stepKto,
  run,
  eval: evaluation,
});

export type StepKtoRunConfig = z.output<typeof schema>;

export const stepKtoConfig: MethodSchema<StepKtoRunConfig> = {
  schema,
  sections: ({ step_kto }) => ({ step_kto }),
  paths: ['judge.path', 'judge.cache', 'eval.judge_run'],
  conflicts,
};

function conflicts({ step_kto, judge, eval: evaluation, data, model }: StepKtoRunConfig): Conflict[] {
  const found = wholeSolutions('step_kto', data);
  const add = (path: readonly string[], message: string) => found.push({ path, message });
  if (step_kto.z0 === 'batch_kl' || step_kto.z0_step === 'step_kl')
    found.push(...loneBatch('step_kto', step_kto));
  if (step_kto.iterations === 0) return found;
  if (typeof model.base !== 'string')
    add(
      ['model', 'base'],
      'sampling needs a model that can solve problems: name a trained base, or set step_kto.iterations to 0',
    );
  for (const [section, kind] of [
    ['judge', judge.kind],
    ['eval', evaluation.judge],
  ] as const) {
    if (kind === 'oracle' && data.source !== 'word_problems')
      add(
        [section, section === 'judge' ? 'kind' : 'judge'],
        `the oracle judges generated problems alone (data.source word_problems), found data.source ${JSON.stringify(data.source)}`,
      );
  }
  if ((judge.kind === 'run' || judge.kind === 'file') && judge.path === undefined)
    add(['judge', 'path'], `judge.kind "${judge.kind}" needs judge.path`);
  if (evaluation.judge === 'run' && evaluation.judge_run === undefined)
    add(['eval', 'judge_run'], 'eval.judge "run" needs eval.judge_run, the directory of that run');
  if (judge.kind === 'run' && evaluation.judge === 'run' && isSamePlace(judge.path, evaluation.judge_run)) {
    add(
      ['eval', 'judge_run'],
      `${evaluation.judge_run} labels the training data and would judge its own lessons: what it calls right by mistake the policy learns, ` +
        'and the figures would not show it; evaluate with another judge, such as "oracle", or with "none"',
    );
  }
  return found;
}

/** Whether two paths lead to one directory, however they are written. */
function isSamePlace(one = '', other = ''): boolean {
  const placeOf = (path: string) => (existsSync(path) ? realpathSync(path) : resolve(path));
  return placeOf(one) === placeOf(other);
}
