// A run and its method, as the stages of this folder see them.
import type { Dataset } from '../../../data/dataset.js';
import type { OfflineItem } from '../../../scoring/implicit/items.js';
import type { OpenRun } from '../../../train/method.js';
import type { Trainee } from '../../../train/roles/trainee.js';
import type { AskedProblems } from '../../../train/solutions/asked.js';
import type { OfflineData } from '../answers/data.js';
import type { ItemKind } from '../answers/kinds.js';
import type { OfflineObjective } from '../answers/objective.js';
import type { RoundSettings, RoundsConfig } from './config.js';

export interface OfflineLearning {
  readonly name: string;
  kind(config: RoundsConfig): ItemKind;
  settings(config: RoundsConfig): RoundSettings;
  objective(config: RoundsConfig, train: Dataset<OfflineItem>): OfflineObjective;
}

/** `items` is empty in rounds, which make their answers; `asked` is absent where nothing is sampled. */
export interface AnswerData extends OfflineData {
  readonly asked?: AskedProblems;
}

/** A run that samples. */
export type AskingRun = OpenRun<RoundsConfig, AnswerData & { readonly asked: AskedProblems }, Trainee>;
