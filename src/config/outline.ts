// The schema as a tree of plain objects (JSON Schema), for messages, documentation and comments.
import { z } from 'zod';
import { optimizer } from './optimizer.js';
import type { MethodSchema } from './schema.js';

/** The parts of JSON Schema that this configuration uses. */
export interface Outline {
  readonly type?: 'object' | 'array' | 'string' | 'number' | 'integer' | 'boolean';
  readonly description?: string;
  readonly default?: unknown;
  /** Wording for messages, set in the field's metadata. */
  readonly expects?: string;
  /** The group of keys that many sections have and the documentation says once. */
  readonly shared?: 'optimizer' | 'batches' | 'rounds' | 'rollouts';
  readonly properties?: Readonly<Record<string, Outline>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: Outline | false;
  readonly items?: Outline | false;
  readonly prefixItems?: readonly Outline[];
  readonly anyOf?: readonly Outline[];
  /** A union of sections, discriminated by the value of one key. */
  readonly oneOf?: readonly Outline[];
  readonly enum?: readonly string[];
  readonly const?: unknown;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly exclusiveMaximum?: number;
}

const outlines = new WeakMap<z.ZodType, Outline>();

export function methodOutline({ schema }: Pick<MethodSchema, 'schema'>): Outline {
  let outline = outlines.get(schema);
  if (outline === undefined) {
    const own = z.toJSONSchema(schema, { io: 'input' }) as Outline;
    const shared = z.toJSONSchema(optimizer, { io: 'input' }) as Outline;
    outline = { ...own, properties: { ...own.properties, optimizer: shared } };
    outlines.set(schema, outline);
  }
  return outline;
}

/** The node at `path`; undefined if the schema has none. A union is entered through its section or its list. */
export function outlineAt(root: Outline, path: readonly PropertyKey[]): Outline | undefined {
  let node: Outline | undefined = root;
  for (const key of path) {
    if (node === undefined) return undefined;
    if (typeof key === 'number') {
      const list: Outline = node.anyOf?.find(({ type }) => type === 'array') ?? node;
      node = list.prefixItems?.[key] ?? (list.items || undefined);
      continue;
    }
    const section: Outline = sectionOf(node) ?? node;
    const name = String(key);
    node =
      section.properties && Object.hasOwn(section.properties, name)
        ? section.properties[name]
        : section.additionalProperties || undefined;
  }
  return node;
}

/** `node` if it is a section; for a union such as `none | {…}` its section, several merged into one with all keys. */
export function sectionOf(node: Outline): Outline | undefined {
  if (node.type === 'object') return node;
  if (node.oneOf) return allSections(node.oneOf);
  return node.anyOf?.find((choice) => choice.type === 'object');
}

/** All keys of a discriminated union of sections; a key is required if every section that has it requires it. */
function allSections(sections: readonly Outline[]): Outline {
  const keys = [...new Set(sections.flatMap(({ properties }) => Object.keys(properties ?? {})))];
  const properties = keys.map((key) => {
    const nodes = sections.flatMap((section) => section.properties?.[key] ?? []);
    const values = nodes.flatMap((node) => node.enum ?? []);
    const node = { ...(nodes[0] as Outline), ...(values.length > 0 ? { enum: [...new Set(values)] } : {}) };
    const only = nodes.length < sections.length ? `Only for ${kindsWith(sections, key)}.` : '';
    return [key, { ...node, description: `${node.description ?? ''} ${only}`.trim() }] as const;
  });
  const required = keys.filter((key) =>
    sections.every((section) => !section.properties?.[key] || section.required?.includes(key)),
  );
  return { type: 'object', properties: Object.fromEntries(properties), required };
}

/** The sections of a discriminated union that have `key`, in words: `model_type "opt"`. Undefined if none has it. */
export function kindsWith(sections: readonly Outline[], key: string): string | undefined {
  const having = sections.filter(({ properties }) => properties && Object.hasOwn(properties, key));
  const teller = Object.keys(sections[0]?.properties ?? {}).find((name) =>
    sections.every(({ properties }) => properties?.[name]?.enum),
  );
  if (having.length === 0 || teller === undefined) return undefined;
  const values = having.flatMap(({ properties }) => properties?.[teller]?.enum ?? []);
  return `${teller} ${values.map((value) => JSON.stringify(value)).join(' or ')}`;
}

export function keysOf(node: Outline): string[] {
  return Object.keys(sectionOf(node)?.properties ?? {});
}

/** The expected value at `node`, in words: `a whole number of at least 1`. */
export function expectation(node: Outline): string {
  if (node.expects !== undefined) return node.expects;
  if (node.anyOf) return node.anyOf.map(expectation).join(' or ');
  if (node.oneOf) return 'a section';
  if (node.const !== undefined) return JSON.stringify(node.const);
  if (node.enum) return oneOf(node.enum);
  switch (node.type) {
    case 'boolean':
      return 'true or false';
    case 'object':
      return node.additionalProperties ? 'names with values' : 'a section';
    case 'array':
      return 'a list';
    case 'integer':
      return `a whole number${bounds(node)}`;
    case 'number':
      return `a number${bounds(node)}`;
    default:
      return 'text';
  }
}

/** Whether `node` accepts only text, so that `--set` takes its value verbatim. */
export function isTextOnly(node: Outline): boolean {
  return node.type === 'string' && node.enum === undefined && node.const === undefined;
}

function oneOf(values: readonly string[]): string {
  if (values.length < 3) return values.join(' or ');
  return `one of ${values.slice(0, -1).join(', ')} or ${values.at(-1)}`;
}

// Bounds at the limits of the safe integers come from zod; do not report them.
function bounds({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }: Outline): string {
  const min = minimum !== undefined && minimum > Number.MIN_SAFE_INTEGER ? minimum : undefined;
  const max = maximum !== undefined && maximum < Number.MAX_SAFE_INTEGER ? maximum : undefined;
  if (min !== undefined && max !== undefined) return ` from ${min} to ${max}`;
  const parts: string[] = [];
  if (min !== undefined) parts.push(`of at least ${min}`);
  if (exclusiveMinimum !== undefined) parts.push(`above ${exclusiveMinimum}`);
  if (max !== undefined) parts.push(`of at most ${max}`);
  if (exclusiveMaximum !== undefined) parts.push(`below ${exclusiveMaximum}`);
  return parts.length > 0 ? ` ${parts.join(' and ')}` : '';
}
