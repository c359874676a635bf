/** Adapters with a classification head, such as reward networks, score text and cannot write any. */
import { readAdapterConfig } from '../weights/adapter.js';
import { WeightsError } from '../weights/error.js';

/** @throws WeightsError for an adapter of a classifier, or a directory that is no adapter */
export function refuseClassifier(directory: string): void {
  const { taskType } = readAdapterConfig(directory);
  if (taskType !== 'SEQ_CLS' && taskType !== 'TOKEN_CLS') return;
  throw new WeightsError(
    `${directory} is a classifier such as a reward network (task_type ${taskType}): it scores text and writes none; name an adapter of a language model`,
  );
}
