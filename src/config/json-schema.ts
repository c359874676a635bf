// The JSON Schema of recipes, for editors.
import { z } from 'zod';
import { methodNames } from './method-names.js';
import { optimizer } from './optimizer.js';
import type { MethodSchemas } from './schema.js';

type Json = Record<string, unknown>;

/** One schema for the recipes of every method: `method` decides which sections there are. Sections that methods share stand once. */
export function recipeSchema(methods: MethodSchemas): Json {
  const sections = new Map<string, { readonly name: string; readonly schema: unknown }>();
  const shared = (key: string, schema: unknown) => {
    const text = JSON.stringify(schema);
    const known = sections.get(text);
    if (known) return { $ref: `#/$defs/${known.name}` };
    const taken = [...sections.values()].filter(({ name }) => name.replace(/_\d+$/, '') === key).length;
    const name = taken === 0 ? key : `${key}_${taken + 1}`;
    sections.set(text, { name, schema });
    return { $ref: `#/$defs/${name}` };
  };
  const variants = Object.entries(methods).map(([method, row]) => {
    const { properties = {} } = z.toJSONSchema(row.schema, { io: 'input', unrepresentable: 'any' }) as {
      properties?: Json;
    };
    const own = Object.entries(properties).map(([key, schema]) => [
      key,
      key === 'method' ? true : shared(key, withoutShared(schema as Json)),
    ]);
    return {
      if: {
        required: ['method'],
        properties: { method: { enum: [...new Set([method, ...(row.algorithms?.names ?? [])])] } },
      },
      // biome-ignore lint/suspicious/noThenProperty: JSON Schema's own keyword
      then: {
        properties: { extends: true, pretrained: true, optimizer: true, ...Object.fromEntries(own) },
        additionalProperties: false,
      },
    };
  });
  return {
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: 'A recipe of steptrain',
    type: 'object',
    anyOf: [{ required: ['method'] }, { required: ['extends'] }],
    properties: {
      extends: {
        type: 'string',
        description:
          'A recipe under this one: a file beside it, or the name of a recipe of the package. Sections are merged key by key; any other value here takes the place of its value.',
      },
      pretrained: {
        type: 'object',
        description:
          'Sections with the values that take the place of those of this recipe where model.base is none of the models of the package.',
      },
      optimizer: { $ref: '#/$defs/optimizer' },
      method: { enum: methodNames(methods), description: 'The training method.' },
    },
    allOf: variants,
    $defs: {
      optimizer: z.toJSONSchema(optimizer, { io: 'input', unrepresentable: 'any' }),
      ...Object.fromEntries([...sections.values()].map(({ name, schema }) => [name, schema])),
    },
  };
}

/** A section with references in place of its keys of `optimizer`. */
function withoutShared(schema: Json): Json {
  const { properties } = schema as { properties?: Readonly<Record<string, Json>> };
  if (properties === undefined) return schema;
  const own = Object.entries(properties).map(([key, node]) => {
    const { shared: group, ...rest } = node;
    return [key, group === 'optimizer' ? { $ref: `#/$defs/optimizer/properties/${key}` } : rest];
  });
  return { ...schema, properties: Object.fromEntries(own) };
}
