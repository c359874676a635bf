// `method: distill`: how it is configured.
import { z } from 'zod';
import { data } from '../../config/data.js';
import { evaluation } from '../../config/eval-sections.js';
import { lora, model } from '../../config/model.js';
import { questionWords } from '../../config/question.js';
import { run } from '../../config/run.js';
import { type Conflict, conflict, type MethodSchema, withoutEffect } from '../../config/schema.js';
import { samplingConflicts } from '../ppo/config.js';
import { rollout } from '../ppo/sections.js';
import { distill, teacher } from './sections.js';

const schema = z.strictObject({
  method: z.literal('distill').describe('The training method.'),
  model,
  lora,
  data,
  rollout,
  teacher,
  distill,
  run,
  eval: evaluation,
});

export type DistillConfig = z.output<typeof schema>;

export const distillConfig: MethodSchema<DistillConfig, z.input<typeof schema>> = {
  schema,
  sections: ({ distill }) => ({ distill }),
  words: ({ rollout }) => questionWords(rollout),
  models: ['teacher.model', 'distill.judge'],
  conflicts,
  *unread({ distill, rollout, teacher }) {
    yield* withoutEffect('rollout', rollout, {
      keys: ['max_turns', 'turn_timeout'],
      why: 'method distill learns from whole solutions',
      defaults: KEYS.rollout,
    });
    yield* withoutEffect('teacher', teacher, {
      keys: [teacher.url === undefined ? 'served_model' : 'quantize'],
      why: teacher.url === undefined ? 'there is no teacher.url' : 'the teacher is at teacher.url',
      defaults: KEYS.teacher,
    });
    if (distill.judge !== undefined) return;
    for (const key of ['right_weight', 'wrong_weight', 'after_error_weight'] as const)
      if (distill[key] !== (key === 'after_error_weight' ? 0 : 1))
        yield conflict(
          `distill.${key}`,
          `distill.${key} weighs verdicts, and no distill.judge gives any: it is not read`,
        );
  },
};

const KEYS = { rollout: rollout.parse({}), teacher: teacher.parse({}) };

function* conflicts(config: DistillConfig): Generator<Conflict> {
  const { teacher, distill, rollout } = config;
  yield* samplingConflicts('distill', config);
  if (rollout.environment !== undefined)
    yield conflict(
      'rollout.environment',
      'method "distill" learns from whole solutions, and rollout.environment gives episodes of turns; leave it out',
    );
  if ((teacher.model === undefined) === (teacher.url === undefined))
    yield conflict(
      'teacher.model',
      teacher.model === undefined
        ? 'method "distill" needs a teacher: name a model as teacher.model, or a server as teacher.url'
        : 'teacher.model and teacher.url are two teachers; leave out one of them',
    );
  if (rollout.server && rollout.server.max_staleness > 0)
    yield conflict(
      'rollout.server.max_staleness',
      `method "distill" learns from samples of the student as it is, and rollout.server.max_staleness has them drawn ahead; set it to 0, found ${rollout.server.max_staleness}`,
    );
  if (teacher.url !== undefined && distill.beta !== 1)
    yield conflict(
      'distill.beta',
      `a server gives log-probs of sampled tokens, which say KL(student ‖ teacher) alone; set distill.beta to 1, found ${distill.beta}, or name a teacher.model`,
    );
  if (teacher.url !== undefined && rollout.temperature !== 1)
    yield conflict(
      'rollout.temperature',
      `teacher.url gives log-probs at temperature 1 alone; set rollout.temperature to 1, found ${rollout.temperature}`,
    );
  if (
    distill.judge !== undefined &&
    distill.right_weight + distill.wrong_weight + distill.after_error_weight === 0
  )
    yield conflict('distill.right_weight', 'no step has a weight, so there is nothing to learn');
}
