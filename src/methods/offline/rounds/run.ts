// What the stages of this folder see of a run.
import type { OpenRun } from '../../../train/method.js';
import type { AskedProblems } from '../../../train/solutions/asked.js';
import type { Trainee } from '../../../train/trainee.js';
import type { OfflineData } from '../answers/data.js';
import type { RoundsConfig } from './config.js';

/** `items` is empty in rounds, which make their answers; `asked` is absent where nothing is sampled. */
export interface AnswerData extends OfflineData {
  readonly asked?: AskedProblems;
}

/** A run that samples. */
export type AskingRun = OpenRun<RoundsConfig, AnswerData & { readonly asked: AskedProblems }, Trainee>;
