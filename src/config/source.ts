// A recipe's text: YAML with the location of every value, so that messages can point at it.
import { closeSync, openSync, readSync } from 'node:fs';
import { isAlias, isMap, isScalar, isSeq, LineCounter, type Node, parseDocument, visit } from 'yaml';
import { systemReason } from '../files/error.js';
import { clipped } from '../native/shown.js';
import { typedCommand } from '../native/typed-command.js';
import { ConfigError } from './error.js';

/** Max bytes of a recipe; anything near this size is not a recipe. */
const MAX_BYTES = 1 << 20;

/**
 * The text of a recipe; no more is read than a recipe can have.
 *
 * @param where begins the sentence of an error
 * @throws ConfigError where it cannot be read or is no recipe
 */
export function readRecipe(file: string, where = ''): string {
  const bytes = Buffer.alloc(MAX_BYTES + 1);
  let size = 0;
  try {
    const recipe = openSync(file, 'r');
    try {
      for (let read = -1; read !== 0 && size < bytes.length; size += read)
        read = readSync(recipe, bytes, size, bytes.length - size, null);
    } finally {
      closeSync(recipe);
    }
  } catch (error) {
    throw new ConfigError(`${where}the recipe ${file} cannot be read: ${systemReason(error)}`);
  }
  if (size > MAX_BYTES)
    throw new ConfigError(`${file}: a recipe is a short YAML file, this one is larger than 1 MiB`);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes.subarray(0, size));
  } catch {
    throw new ConfigError(`${file}: a recipe is YAML in UTF-8, this file is not UTF-8 text`);
  }
}

/** No section has nearly as many. */
const MAX_KEYS = 1000;

export interface RecipeSource {
  /** Name of the file, as the user gave it. */
  readonly name: string;
  readonly value: Record<string, unknown>;
  /** `file:line:column` of the value at `path`, of its key with `{ key: true }`, or of the nearest section around it. */
  locate(path: readonly PropertyKey[], options?: { readonly key?: boolean }): string;
}

/** Files with rows or a problem. */
const DATA = /\.(jsonl|ndjson|csv|tsv|parquet|txt|gz)$/;

/** Parses a recipe. Throws ConfigError with the location for anything that is not one YAML mapping. */
export function parseRecipe(content: string, name: string): RecipeSource {
  if (DATA.test(name))
    throw new ConfigError(
      `${name} is no recipe; to train on it name it as data: ${typedCommand(`run RECIPE --set data.train=${name}`)}`,
    );
  const lines = new LineCounter();
  // The library compares each key with all before it.
  const document = parseDocument(content, { lineCounter: lines, prettyErrors: false, uniqueKeys: false });
  const at = (offset: number) => {
    const { line, col } = lines.linePos(offset);
    return `${name}:${line}:${col}`;
  };
  // A YAML warning (an unknown tag, for example) means that a value was not read as written.
  const problem = document.errors[0] ?? document.warnings[0];
  if (problem) {
    throw new ConfigError(`${at(problem.pos[0])}: this is not valid YAML: ${yamlReason(problem)}`);
  }
  visit(document, {
    Map(_, { items, range }) {
      if (items.length > MAX_KEYS)
        throw new ConfigError(
          `${at(range?.[0] ?? 0)}: a section has at most ${MAX_KEYS} keys, this one has ${items.length}`,
        );
      const keys = new Set<string>();
      for (const { key } of items) {
        const name = String(isScalar(key) ? key.value : key);
        if (keys.has(name)) {
          const offset = (key as Node).range?.[0] ?? 0;
          throw new ConfigError(
            `${at(offset)}: the key ${JSON.stringify(clipped(name))} stands here a second time`,
          );
        }
        keys.add(name);
      }
    },
  });
  const root = document.contents;
  if (root !== null && !isMap(root)) {
    throw new ConfigError(
      `${at(root.range?.[0] ?? 0)}: a recipe is a mapping of sections such as "sft:", found ${isSeq(root) ? 'a list' : 'a single value'}`,
    );
  }
  let value: unknown;
  try {
    value = document.toJS() ?? {};
  } catch (error) {
    throw new ConfigError(`${name}: this is not usable YAML: ${yamlReason(error as Error)}`);
  }

  return {
    name,
    value: value as Record<string, unknown>,
    locate(path, { key = false } = {}) {
      let node: Node | null | undefined = root;
      let offset: number | undefined;
      path.forEach((segment, depth) => {
        if (isAlias(node)) node = node.resolve(document);
        if (isSeq(node)) {
          node = node.items[Number(segment)] as Node | undefined;
          offset = node?.range?.[0] ?? offset;
          return;
        }
        const pair = isMap(node)
          ? node.items.find((item) => isScalar(item.key) && String(item.key.value) === String(segment))
          : undefined;
        node = pair?.value as Node | null | undefined;
        const keyOffset = (pair?.key as Node | undefined)?.range?.[0];
        // A section with a missing key is located at its name, a value at the value.
        const atKey = isMap(node) || node == null || (key && depth === path.length - 1);
        offset = (atKey ? keyOffset : node?.range?.[0]) ?? offset;
      });
      return offset === undefined ? name : at(offset);
    },
  };
}

/** The library's objection to a text, in a sentence of ours where its own is about itself. */
export function yamlReason({ message }: Error): string {
  if (/call stack/.test(message)) return 'it is nested too deeply';
  if (/multiple documents/.test(message)) return 'expected one document, found a second one after ---';
  return clipped(message.split('\n')[0]!.replace(/[.:]$/, ''), 200);
}
