/** Checkpoints that name weights as a class of the trunk alone does: `decoder.…` for `model.decoder.…`, as OPT's files on the hub. */
import type { CheckpointReader } from './reader.js';

/**
 * The reader with the names that a model needs. transformers, too, puts the name of the trunk in front, where that gives the names that
 * it looks for.
 *
 * @param expected names of the model's weights
 */
export function withTrunkNames(reader: CheckpointReader, expected: readonly string[]): CheckpointReader {
  const [trunk] = expected.map((name) => name.slice(0, name.indexOf('.') + 1));
  const stored = [...reader.tensors.keys()];
  const wanted = new Set(expected);
  if (!trunk || stored.some((name) => name.startsWith(trunk))) return reader;
  if (!stored.some((name) => wanted.has(trunk + name))) return reader;
  const renamed = (name: string) => (wanted.has(name) ? name : trunk + name);
  const original = (name: string) => (reader.tensors.has(name) ? name : name.slice(trunk.length));
  return {
    directory: reader.directory,
    tensors: new Map([...reader.tensors].map(([name, entry]) => [renamed(name), entry])),
    read: (name) => reader.read(original(name)),
    format: (name) => reader.format?.(original(name)),
    quantized: (name) => reader.quantized?.(original(name)),
    close: () => reader.close(),
  };
}
