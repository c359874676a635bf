/** A run of this method with all that it has open. */
import type { OpenRun } from '../../train/method.js';
import type { VerdictData } from '../../train/verdicts/data.js';
import type { StepAmcRunConfig } from './config.js';
import type { StepAmcRoles } from './roles.js';

export type StepAmcRun = OpenRun<StepAmcRunConfig, VerdictData, StepAmcRoles>;
