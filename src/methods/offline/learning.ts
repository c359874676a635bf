import type { Dataset } from '../../data/dataset.js';
import type { OfflineItem } from '../../scoring/implicit/items.js';
import type { ItemKind } from './answers/kinds.js';
import type { OfflineObjective } from './answers/objective.js';
import type { RoundSettings, RoundsConfig } from './rounds/config.js';

/** What the stages know of a method. */
export interface OfflineLearning {
  readonly name: string;
  kind(config: RoundsConfig): ItemKind;
  settings(config: RoundsConfig): RoundSettings;
  objective(config: RoundsConfig, train: Dataset<OfflineItem>): OfflineObjective;
}
