/** A run of this method with all that it has open. */
import type { FrameConfig } from '../../config/schema.js';
import type { OpenRun, RunRoles } from '../../train/method.js';
import type { AskedProblems } from '../../train/solutions/asked.js';
import type { PpoRunConfig } from './config.js';
import type { OpenSource } from './reward-sources.js';
import type { PpoRoles } from './roles.js';

/** A run whose policy samples solutions of problems. */
export type SolvingRun = OpenRun<
  FrameConfig & Pick<PpoRunConfig, 'rollout'>,
  AskedProblems,
  RunRoles & Pick<PpoRoles, 'policy'>
>;

export type PpoRun = OpenRun<PpoRunConfig, AskedProblems, RewardedRoles>;

/** The roles, and what rewards their solutions. */
export interface RewardedRoles extends PpoRoles {
  readonly sources: readonly OpenSource[];
}
