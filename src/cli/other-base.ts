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
  const { foreignBase } = await import('../train/trained-on.js');
  const { refusal, warning } = await foreignBase(adapter, base, directory);
  if (refusal !== undefined)
    throw new UsageError(`${refusal}; name that one, or ${use} all the same with --other-base`);
  if (warning !== undefined) console.error(`warning: ${warning}`);
}
