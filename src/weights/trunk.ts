/**
 * Checkpoints that name weights as another class does: the trunk alone, `decoder.…` for `model.decoder.…`, as OPT's files on the hub;
 * a model that sees, `model.language_model.…` for `model.…`.
 */
import type { CheckpointReader } from './reader.js';

/**
 * The reader with the names that a model needs. transformers, too, puts the name of the trunk in front, where that gives the names that
 * it looks for.
 *
 * @param expected names of the model's weights
 */
export function withTrunkNames(reader: CheckpointReader, expected: readonly string[]): CheckpointReader {
  const stored = [...reader.tensors.keys()];
  if (stored.some((name) => name.startsWith(SEEING)) && !expected.some((name) => name.startsWith(SEEING)))
    return renamedReader(
      reader,
      (name) => name.replace(SEEING, TEXT),
      (name) => {
        const original = name.replace(TEXT, SEEING);
        return reader.tensors.has(original) ? original : name;
      },
    );
  const [trunk] = expected.map((name) => name.slice(0, name.indexOf('.') + 1));
  const wanted = new Set(expected);
  if (!trunk || stored.some((name) => name.startsWith(trunk))) return reader;
  if (!stored.some((name) => wanted.has(trunk + name))) return reader;
  const renamed = (name: string) => (wanted.has(name) ? name : trunk + name);
  const original = (name: string) => (reader.tensors.has(name) ? name : name.slice(trunk.length));
  return renamedReader(reader, renamed, original);
}

const [SEEING, TEXT] = ['model.language_model.', 'model.'];

function renamedReader(
  reader: CheckpointReader,
  renamed: (name: string) => string,
  original: (name: string) => string,
): CheckpointReader {
  return {
    directory: reader.directory,
    tensors: new Map([...reader.tensors].map(([name, entry]) => [renamed(name), entry])),
    read: (name) => reader.read(original(name)),
    format: (name) => reader.format?.(original(name)),
    quantized: (name) => reader.quantized?.(original(name)),
    close: () => reader.close(),
  };
}
