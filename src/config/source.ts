// A recipe's text: YAML with the location of every value, so that messages can point at it.
import { isAlias, isMap, isScalar, isSeq, LineCounter, type Node, parseDocument } from 'yaml';
import { ConfigError } from './error.js';

export interface RecipeSource {
  /** Name of the file, as the user gave it. */
  readonly name: string;
  readonly value: Record<string, unknown>;
  /** `file:line:column` of the value at `path`, of its key with `{ key: true }`, or of the nearest section around it. */
  locate(path: readonly PropertyKey[], options?: { readonly key?: boolean }): string;
}

/** Parses a recipe. Throws ConfigError with the location for anything that is not one YAML mapping. */
export function parseRecipe(content: string, name: string): RecipeSource {
  const lines = new LineCounter();
  const document = parseDocument(content, { lineCounter: lines, prettyErrors: false });
  const at = (offset: number) => {
    const { line, col } = lines.linePos(offset);
    return `${name}:${line}:${col}`;
  };
  // A YAML warning (an unknown tag, for example) means that a value was not read as written.
  const problem = document.errors[0] ?? document.warnings[0];
  if (problem) {
    throw new ConfigError(`${at(problem.pos[0])}: this is not valid YAML: ${firstSentence(problem.message)}`);
  }
  const root = document.contents;
  if (root !== null && !isMap(root)) {
    throw new ConfigError(
      `${at(root.range?.[0] ?? 0)}: a recipe is a list of sections such as "sft:", found other content`,
    );
  }
  let value: unknown;
  try {
    value = document.toJS() ?? {};
  } catch (error) {
    throw new ConfigError(`${name}: this is not usable YAML: ${firstSentence((error as Error).message)}`);
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
        // For a section with a missing key point at its name, for a value at the value.
        const atKey = isMap(node) || node == null || (key && depth === path.length - 1);
        offset = (atKey ? keyOffset : node?.range?.[0]) ?? offset;
      });
      return offset === undefined ? name : at(offset);
    },
  };
}

function firstSentence(message: string): string {
  return message.split('\n')[0]!.replace(/[.:]$/, '');
}
