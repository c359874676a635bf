/** Parameters of calls that have no JSON around them, such as `<parameter=a>123</parameter>` of Qwen 3.5: the schema of the tool says what a text is. */

/**
 * Writes a parameter as JSON, as vLLM reads it by the schema of the tool: a text, unless the schema has another type of which it
 * is a value. A parameter that no schema describes is a text.
 */
export function parameterJson(text: string, tools: readonly unknown[], tool: string, key: string): string {
  const types = typesOf(propertiesOf(tools, tool)?.[key]);
  for (const [type, jsonOf] of READERS) {
    const json = types.has(type) ? jsonOf(text) : undefined;
    if (json !== undefined) return json;
  }
  return types.has('string') ? JSON.stringify(text) : (finiteJson(text) ?? JSON.stringify(text));
}

/** Types in the order in which they are tried, each with the JSON of a text that is such a value. */
const READERS: readonly (readonly [type: string, jsonOf: (text: string) => string | undefined])[] = [
  ['null', (text) => (text.toLowerCase() === 'null' ? 'null' : undefined)],
  ['integer', wholeNumber],
  ['number', (text) => wholeNumber(text) ?? (/^\s*-?\d/.test(text) ? finiteJson(text) : undefined)],
  ['boolean', (text) => BOOLEANS.get(text.trim().toLowerCase())],
  ['object', (text) => (text.trimStart().startsWith('{') ? finiteJson(text) : undefined)],
  ['array', (text) => (text.trimStart().startsWith('[') ? finiteJson(text) : undefined)],
];

const BOOLEANS = new Map([
  ['true', 'true'],
  ['1', 'true'],
  ['false', 'false'],
  ['0', 'false'],
]);

function wholeNumber(text: string): string | undefined {
  const digits = /^\s*([-+]?)(\d+)\s*$/.exec(text);
  return digits === null ? undefined : `${BigInt(`${digits[2]}`) * (digits[1] === '-' ? -1n : 1n)}`;
}

/** The text, if it is JSON in which every number is finite. */
function finiteJson(text: string): string | undefined {
  try {
    JSON.parse(text, (_, value: unknown) => {
      if (typeof value === 'number' && !Number.isFinite(value)) throw new RangeError();
      return value;
    });
    return text;
  } catch {
    return undefined;
  }
}

type Schema = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Schema =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function propertiesOf(tools: readonly unknown[], tool: string): Schema | undefined {
  for (const each of tools) {
    if (!isObject(each)) continue;
    const { name, parameters } = isObject(each.function) ? each.function : each;
    if (name === tool && isObject(parameters) && isObject(parameters.properties))
      return parameters.properties;
  }
  return undefined;
}

/** Types that schemas of tools have beside JSON Schema's. */
const ALIASES: Readonly<Record<string, string>> = {
  str: 'string',
  text: 'string',
  int: 'integer',
  float: 'number',
  bool: 'boolean',
  dict: 'object',
  list: 'array',
};

/** All types that a schema allows; a text where it names none. */
function typesOf(schema: unknown): ReadonlySet<string> {
  const named = isObject(schema) ? namedTypes(schema) : [];
  return new Set(named.length === 0 ? ['string'] : named.map((name) => ALIASES[name] ?? name));
}

function namedTypes({ type, enum: values, anyOf, oneOf, allOf }: Schema): string[] {
  const own = [type].flat().filter((each) => typeof each === 'string');
  const listed = Array.isArray(values) ? values.map(typeOfValue) : [];
  const choices = [anyOf, oneOf, allOf].flatMap((each) => (Array.isArray(each) ? each : []));
  return [...own, ...listed, ...choices.flatMap((each) => [...typesOf(each)])];
}

function typeOfValue(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  if (typeof value !== 'number') return typeof value;
  return Number.isInteger(value) ? 'integer' : 'number';
}
