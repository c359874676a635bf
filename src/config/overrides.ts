// `--set a.b=c`: one value of the recipe, replaced from the command line.
import { parseDocument } from 'yaml';
import { clipped } from '../native/shown.js';
import { ConfigError } from './error.js';
import { unknownKey } from './issues.js';
import { isTextOnly, type Outline, outlineAt } from './outline.js';
import { yamlReason } from './source.js';
import { setAt } from './values.js';

export interface Override {
  readonly path: readonly string[];
  /** The value as typed. */
  readonly text: string;
  /** The whole setting, for messages. */
  readonly origin: string;
}

/** Splits `a.b=c`. Throws ConfigError if there is no key or no equals sign. */
export function parseOverride(setting: string): Override {
  const equals = setting.indexOf('=');
  const path = setting.slice(0, Math.max(equals, 0)).trim().split('.');
  if (equals < 0 || path.some((key) => key === '')) {
    throw new ConfigError(
      `--set ${clipped(setting, 200)}: expected section.key=value, such as sft.learning_rate=1e-4`,
    );
  }
  return { path, text: setting.slice(equals + 1), origin: clipped(`--set ${setting}`, 200) };
}

/**
 * Applies the overrides to `value` in order and creates missing sections. Values are parsed as YAML, except for keys that
 * hold text: those are taken as typed unless YAML parses them as a string.
 */
export function applyOverrides(
  value: Record<string, unknown>,
  overrides: readonly Override[],
  outline: Outline,
): void {
  for (const override of overrides) {
    for (let depth = 1; depth <= override.path.length; depth++) {
      const path = override.path.slice(0, depth);
      if (outlineAt(outline, path) === undefined) {
        throw new ConfigError(unknownKey(path, { outline, locate: () => override.origin }));
      }
    }
    setAt(value, override.path, readValue(override, outlineAt(outline, override.path)!));
  }
}

/** A value as YAML, or why it is none. */
function readYaml(text: string): { readonly value?: unknown; readonly problem?: Error | undefined } {
  const document = parseDocument(text, { prettyErrors: false });
  const problem = document.errors[0] ?? document.warnings[0];
  if (problem) return { problem };
  try {
    return { value: document.toJS() };
  } catch (error) {
    return { problem: error as Error }; // an alias without its anchor, or too many of them
  }
}

function readValue({ text, origin }: Override, node: Outline): unknown {
  if (text.trim() === '' && node.type === 'object') {
    const key = Object.keys(node.properties ?? {})[0] ?? 'key';
    throw new ConfigError(
      `${origin}: a section has no value of its own; set a key of it, such as ${origin.slice('--set '.length).replace(/=.*/s, '')}.${key}=…`,
    );
  }
  const { value, problem } = readYaml(text);
  if (isTextOnly(node)) return typeof value === 'string' ? value : text;
  // If text is one of several types, a list or section is parsed as such and anything else is taken as typed.
  if (node.anyOf?.some(isTextOnly))
    return typeof value === 'object' || typeof value === 'string' ? value : text;
  if (problem) throw new ConfigError(`${origin}: the value is not valid YAML: ${yamlReason(problem)}`);
  return value;
}
