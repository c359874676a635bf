// Where a run left its model.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { baseDirectory } from '../models/base.js';
import { RunError } from './error.js';

/** The directories of a model and of the adapter on top of it. */
export interface TrainedModel {
  readonly model: string;
  readonly adapter: string | undefined;
}

/**
 * An adapter on its base, or a whole model.
 *
 * @throws RunError where there is neither
 */
export function trainedModel(directory: string, base: unknown): TrainedModel {
  const adapter = join(directory, 'adapter');
  if (typeof base === 'string' && existsSync(adapter)) return { model: baseDirectory(base), adapter };
  const model = join(directory, 'model');
  if (existsSync(model)) return { model, adapter: undefined };
  throw new RunError(
    `${directory} holds neither adapter/ nor model/: its training has not ended; continue with: steptrain run --resume ${directory}`,
  );
}
