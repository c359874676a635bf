/** The student, its teacher and the judge of its steps. */
import type { TrainableParameters } from '../../autograd/parameters.js';
import type { Decoder, Role } from '../../models/decoder.js';
import { admitScorer } from '../../rewards/gate.js';
import type { Device } from '../../runtime/device.js';
import { openScorer } from '../../scoring/open.js';
import type { Scorer } from '../../scoring/scorer.js';
import type { RunContext, RunRoles } from '../../train/method.js';
import type { PlannedRole } from '../../train/plan/memory-plan.js';
import { heldMemory } from '../../train/roles/held-memory.js';
import { createRoles, rolesOptions } from '../../train/roles/roles.js';
import { saveModel } from '../../train/roles/save-model.js';
import type { RoleSpec } from '../../train/roles/spec.js';
import { held as plannedModel } from '../ppo/reward-memory.js';
import type { DistillConfig } from './config.js';
import { type LocalTeacher, localTeacher, plannedTeacher, teacherOptions } from './local-teacher.js';
import { checkJudge } from './weighing.js';

export interface DistillRoles extends RunRoles {
  readonly decoder: Decoder;
  readonly policy: Role;
  readonly policyParameters: TrainableParameters;
  /** Absent where a server is asked. */
  readonly teacher: LocalTeacher | undefined;
  readonly judge: Scorer | undefined;
  /** Writes adapter/ or model/. */
  save(fileOf: (name: string) => string): Promise<void>;
}

const STUDENT: readonly RoleSpec[] = [{ role: 'policy', held: 'trained' }];

/** The student, and the teacher's weights where it is in this process. */
export function plannedRoles(config: DistillConfig, device: Pick<Device, 'info'>): readonly PlannedRole[] {
  if (config.teacher.model === undefined) return STUDENT;
  const files = plannedTeacher(config);
  const what = files
    ? plannedModel(files, device)
    : { what: `${config.teacher.model} is not there yet and not counted`, bytes: 0 };
  return [...STUDENT, { role: 'teacher', ...what }];
}

export async function distillRoles({
  device,
  config,
  tokenizer,
}: RunContext<DistillConfig>): Promise<DistillRoles> {
  const roles = await createRoles(device, rolesOptions(config), STUDENT);
  const beside = heldMemory(device);
  const made: { dispose(): void }[] = [roles];
  const dispose = () => {
    for (const item of made.splice(0).toReversed()) item.dispose();
  };
  try {
    const { decoder, parameters } = roles;
    const { role: policy, parameters: policyParameters } = roles.trained('policy');
    const { vocabSize } = decoder.config;
    const named = config.teacher.model;
    const teacher =
      named === undefined
        ? undefined
        : await localTeacher(device, named, { vocabSize, tokenizer }, teacherOptions(config));
    if (teacher) made.push(teacher);
    beside.mark('teacher');
    const judge = await judgeOf(device, config);
    if (judge) made.push(judge);
    beside.mark('judge');
    return {
      ...{ decoder, parameters, policy, policyParameters, teacher, judge, dispose },
      held: { ...roles.held, ...beside.held },
      async save(fileOf) {
        if (policy.adapter) await policy.adapter.save(fileOf('adapter'));
        else await saveModel(decoder, tokenizer, fileOf('model'));
      },
    };
  } catch (error) {
    dispose();
    throw error;
  }
}

async function judgeOf(device: Device, { distill, run }: DistillConfig): Promise<Scorer | undefined> {
  const { judge: name } = distill;
  if (name === undefined) return undefined;
  await admitScorer(name, run.accept_weak_reward);
  const judge = await openScorer(device, name, { unit: 'step' });
  try {
    checkJudge(judge);
  } catch (error) {
    judge.dispose();
    throw error;
  }
  return judge;
}
