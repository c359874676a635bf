/** Stages of a round that go through problems some at a time and write rows of one artefact. */
import type { MakingOutcome, MakingStage, SaveSettings, StepPart } from '../../../train/stage.js';

/** Problems of one step. */
const CHUNK = 32;

export interface ChunkedStageOptions<Item> {
  /** Also of the artefact. */
  readonly name: string;
  readonly settings: SaveSettings;
  readonly note?: string | undefined;
  /** One for each problem. */
  readonly items: readonly Item[];
  /** Step `index`; undefined if the signal stopped it. */
  step(
    chunk: readonly Item[],
    index: number,
    signal: AbortSignal,
    report?: (part: StepPart) => void,
  ): Promise<MakingOutcome | undefined>;
  dispose?(): void;
}

export function chunkedStage<Item>(options: ChunkedStageOptions<Item>): MakingStage {
  const { name, settings, note, items } = options;
  return {
    name,
    artefact: name,
    steps: Math.max(1, Math.ceil(items.length / CHUNK)),
    settings,
    note,
    batching: {},
    open: () => ({
      begin: async () => {},
      step: (index, signal, report) =>
        options.step(items.slice(index * CHUNK, (index + 1) * CHUNK), index, signal, report),
      dispose: () => options.dispose?.(),
    }),
  };
}
