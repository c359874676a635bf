/** The offline methods: an objective and a kind of data each. */
import {
  allAnswers,
  answerPairs,
  judgedAnswers,
  labelledAnswers,
  rightAnswers,
  stepPairs,
} from '../../train/offline/kinds.js';
import { dpo } from '../../train/offline/objectives/dpo.js';
import { fullStepDpo } from '../../train/offline/objectives/full-step-dpo.js';
import { implicitPrm } from '../../train/offline/objectives/implicit-prm.js';
import { kto } from '../../train/offline/objectives/kto.js';
import { likelihood } from '../../train/offline/objectives/likelihood.js';
import { orpo } from '../../train/offline/objectives/orpo.js';
import { simpo } from '../../train/offline/objectives/simpo.js';
import { stepKto } from '../../train/offline/objectives/step-kto.js';
import { answerMethod } from '../rounds/method.js';
import type { ImplicitPrmRunConfig, RftRunConfig, SolutionSftRunConfig } from './answers.js';
import type { DpoRunConfig } from './dpo.js';
import type { KtoRunConfig } from './kto.js';
import type { FullStepDpoRunConfig, OrpoRunConfig, SimpoRunConfig, StepDpoRunConfig } from './pairs.js';
import type { StepKtoRunConfig } from './step-kto.js';

export const ktoMethod = answerMethod<KtoRunConfig>({
  kind: labelledAnswers,
  stage: ({ kto: settings }) => ({ name: 'kto', settings, objective: () => kto(settings) }),
});

export const stepKtoMethod = answerMethod<StepKtoRunConfig>({
  kind: ({ step_kto }) => judgedAnswers(step_kto),
  stage: ({ step_kto: settings }) => ({
    name: 'step_kto',
    settings,
    objective: (train) => stepKto(settings, train),
  }),
});

export const dpoMethod = answerMethod<DpoRunConfig>({
  kind: answerPairs,
  stage: ({ dpo: settings }) => ({ name: 'dpo', settings, objective: () => dpo(settings) }),
});

export const stepDpoMethod = answerMethod<StepDpoRunConfig>({
  kind: stepPairs,
  stage: ({ step_dpo: settings }) => ({
    name: 'step_dpo',
    settings,
    objective: () => dpo({ beta: settings.beta, loss_type: 'sigmoid', label_smoothing: 0 }),
  }),
});

export const fullStepDpoMethod = answerMethod<FullStepDpoRunConfig>({
  kind: answerPairs,
  stage: ({ full_step_dpo: settings }) => ({
    name: 'full_step_dpo',
    settings,
    objective: () => fullStepDpo(settings),
  }),
});

export const simpoMethod = answerMethod<SimpoRunConfig>({
  kind: answerPairs,
  stage: ({ simpo: settings }) => ({ name: 'simpo', settings, objective: () => simpo(settings) }),
});

export const orpoMethod = answerMethod<OrpoRunConfig>({
  kind: answerPairs,
  stage: ({ orpo: settings }) => ({ name: 'orpo', settings, objective: () => orpo(settings) }),
});

export const solutionSftMethod = answerMethod<SolutionSftRunConfig>({
  kind: allAnswers,
  stage: ({ solution_sft: settings }) => ({ name: 'solution_sft', settings, objective: likelihood }),
});

export const rftMethod = answerMethod<RftRunConfig>({
  kind: rightAnswers,
  stage: ({ rft: settings }) => ({ name: 'rft', settings, objective: likelihood }),
});

export const implicitPrmMethod = answerMethod<ImplicitPrmRunConfig>({
  kind: labelledAnswers,
  stage: ({ implicit_prm: settings }) => ({
    name: 'implicit_prm',
    settings,
    objective: () => implicitPrm(settings),
  }),
});
