/** Whether an adapter that a command names was trained on the base that it names. */
import { UsageError } from './error.js';

export interface NamedAdapter {
  readonly adapter: string;
  /** As it was given: a directory, a hub id or a name of the package. */
  readonly base: string;
  /** Where it lies. */
  readonly directory: string;
}

/**
 * Warns where that cannot be told, as the model that the adapter names is not here.
 *
 * @param use what the command does with the two, such as `merge`
 * @throws UsageError for an adapter of another base
 */
export async function checkOwnBase({ adapter, base, directory }: NamedAdapter, use: string): Promise<void> {
  const { trainedOn } = await import('../train/trained-on.js');
  const { named, same } = await trainedOn(adapter, base, directory);
  if (same === 'no')
    throw new UsageError(
      `${adapter} was trained on ${named}, and ${base} is another model; name that one, or ${use} all the same with --other-base`,
    );
  if (same === 'unknown')
    console.error(
      `warning: ${adapter} was trained on ${named}, which is not here, and ${base} has another name; if it is another model, the result is useless`,
    );
}
