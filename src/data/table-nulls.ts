/**
 * Nulls that tables of one type put in the place of missing keys: Parquet and Arrow, and what `datasets` writes of them. Chat templates
 * would write them into prompts and calls.
 */
import { isRow, type Row } from './columns.js';

/** Keywords of JSON Schema whose value may be null. */
const MAY_BE_NULL = ['default', 'const', 'example'];

/** Those that hold any values. */
const OF_VALUES = [...MAY_BE_NULL, 'enum', 'examples'];

/** Columns with messages. */
const MESSAGES = ['messages', 'conversations', 'prompt', 'completion'];

/**
 * The row without nulls in the descriptions of its tools, where no keyword but {@link MAY_BE_NULL} may have one, and without arguments
 * that are null where their tool describes none of that name, or one that is never null.
 *
 * @param note is called with the name of each part that had some
 */
export function withoutTableNulls(row: Row, note: (part: string) => void): Row {
  if (!Array.isArray(row.tools)) return row;
  const tools = described(row.tools) as readonly unknown[];
  const found = tools === row.tools ? {} : { tools };
  if (tools !== row.tools) note('null for keys of tools');
  const parameters = new Map(tools.flatMap((tool) => parametersOf(tool)));
  const columns = MESSAGES.flatMap((column) => {
    const given = row[column];
    if (!Array.isArray(given)) return [];
    const messages = mapped(given, (message) => withoutUnknown(message, parameters));
    return messages === given ? [] : [[column, messages] as const];
  });
  if (columns.length > 0) note('null for arguments that their tools do not take');
  return { ...row, ...found, ...Object.fromEntries(columns) };
}

/** A part of a description of tools; `isNames`: its keys are names of parameters, of which none may be null. */
function described(value: unknown, isNames = false): unknown {
  if (Array.isArray(value)) return mapped(value, (each) => described(each));
  if (!isRow(value)) return value;
  return changed(value, (key, each) => {
    if (each === null) return isNames || !MAY_BE_NULL.includes(key) ? undefined : each;
    return !isNames && OF_VALUES.includes(key) ? each : described(each, key === 'properties' && !isNames);
  });
}

/** The name of a tool and its parameters that may be null, where it describes them. */
function parametersOf(tool: unknown): (readonly [string, readonly string[]])[] {
  const own = isRow(tool) && isRow(tool.function) ? tool.function : tool;
  if (!isRow(own) || typeof own.name !== 'string') return [];
  const { parameters } = own;
  if (!isRow(parameters) || !isRow(parameters.properties) || isRow(parameters.additionalProperties))
    return [];
  const { properties } = parameters;
  return [[own.name, Object.keys(properties).filter((name) => takesNull(properties[name]))]];
}

/** Whether null fits a schema, as far as its own keywords tell. */
function takesNull(schema: unknown): boolean {
  if (!isRow(schema) || schema.nullable === true) return true;
  const { type, enum: values, anyOf, oneOf } = schema;
  if (Array.isArray(values)) return values.includes(null);
  if (Array.isArray(type)) return type.includes('null');
  if (typeof type === 'string') return type === 'null';
  const some = Array.isArray(anyOf) ? anyOf : oneOf;
  return Array.isArray(some) ? some.some(takesNull) : true;
}

function withoutUnknown(message: unknown, parameters: ReadonlyMap<string, readonly string[]>): unknown {
  if (!isRow(message) || !Array.isArray(message.tool_calls)) return message;
  const ofCall = (call: unknown): unknown => {
    if (!isRow(call)) return call;
    if (isRow(call.function)) return changed(call, (key, each) => (key === 'function' ? ofCall(each) : each));
    const nullable = parameters.get(String(call.name));
    if (!nullable || !isRow(call.arguments)) return call;
    const own = changed(call.arguments, (key, each) =>
      each === null && !nullable.includes(key) ? undefined : each,
    );
    return own === call.arguments ? call : { ...call, arguments: own };
  };
  const calls = mapped(message.tool_calls, ofCall);
  return calls === message.tool_calls ? message : { ...message, tool_calls: calls };
}

/** The list itself where nothing changes. */
function mapped(list: readonly unknown[], to: (item: unknown) => unknown): readonly unknown[] {
  const all = list.map(to);
  return all.every((item, i) => item === list[i]) ? list : all;
}

/** The object itself where nothing changes; else a copy, without the keys that become undefined. Numbers keep how they were written. */
function changed(object: Row, to: (key: string, value: unknown) => unknown): Row {
  const entries = Object.entries(object).map(([key, value]) => [key, value, to(key, value)] as const);
  if (entries.every(([, before, after]) => before === after)) return object;
  const copy: Record<string, unknown> = { ...object };
  for (const [key, , after] of entries)
    if (after === undefined) delete copy[key];
    else copy[key] = after;
  return copy;
}
