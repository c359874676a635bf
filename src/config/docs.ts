// Generates docs/reference/configuration.md from the schema.
import { CHANGEABLE } from './changeable.js';
import { expectation, methodOutline, type Outline, sectionOf } from './outline.js';
import type { MethodSchemas } from './schema.js';

const INTRODUCTION = `# Configuration

<!-- Written by scripts/config-docs.mjs from the sections in src/config and src/methods; edit the descriptions there. -->

A recipe is a YAML file of sections. \`steptrain run recipe.yaml --set section.key=value\` replaces single values; the
value is read as YAML, and text is taken as typed. A key that does not exist is an error that names its place and the
nearest key. Every key below may be left out unless it is called required. The run directory gets \`config.yaml\`, the
merged configuration with every key, which is a recipe again.

\`extends: base.yaml\` puts a recipe on top of another one: a file beside it, or a recipe of the package by its name, such as
\`extends: quickstart\`. Sections are merged key by key; any other value, lists too, takes the place of the one below. \`method\` may
differ: sections that only the method below reads are left out. \`steptrain recipes cat NAME --full\` prints the merged whole, and
\`config.yaml\` of a run is merged.

A section \`pretrained:\` of a recipe for a small model of the package has what takes the place of its values where \`model.base\` is
another model; one line says which. Recipes that extend it, and \`--set\`, stand above both.

Relative paths start at the directory in which the command runs.

## Resuming

\`steptrain run --resume DIR\` continues with the configuration, data, tokenizer and base that the run began with, and refuses what has changed (files may be
moved: \`--set data.train=NEW\`). \`--resume DIR --set key=value\` may change ${CHANGEABLE.map((key) => `\`${key}\``).join(', ')}; more epochs or steps
only extend a stage that has not ended, and change its learning rates from there on. A key that came with a later version has its
default in a run that began before it, which one line says. A key that this version does not have is refused
by name, with what to do.
`;

/** The page as Markdown: one table per section, in the order of the schema. */
export function configurationPage(table: MethodSchemas): string {
  const methodNames = Object.keys(table);
  const sections: { readonly key: string; readonly node: Outline; readonly methods: string[] }[] = [];
  for (const [method, schema] of Object.entries(table)) {
    for (const [key, node] of Object.entries(methodOutline(schema).properties ?? {})) {
      const known = sections.find((each) => each.key === key && sameKeys(each.node, node));
      if (known) known.methods.push(method);
      else sections.push({ key, node, methods: [method] });
    }
  }
  const parts = [
    INTRODUCTION,
    `## method\n\nRequired: ${methodNames.map(code).join(' or ')}.${aliases(table)}\n`,
  ];
  for (const section of sections) {
    const { key, node, methods } = section;
    if (key === 'method') continue;
    const isFirst = sections.find((each) => each.key === key) === section;
    const title = isFirst ? key : `${key} (${methods[0]})`;
    const readBy =
      methods.length === methodNames.length ? '' : ` Read by method ${methods.map(code).join(', ')}.`;
    const whole = isSectionOnly(node) ? '' : ` Default: ${code(JSON.stringify(node.default))}.`;
    parts.push(`## ${title}\n\n${node.description ?? ''}${readBy}${whole}\n\n${keyTable(node)}\n`);
  }
  return parts.join('\n');
}

/** Other names of methods, in a sentence each. */
function aliases(table: MethodSchemas): string {
  return Object.entries(table)
    .flatMap(([method, { algorithms }]) => {
      const names = algorithms?.names.filter((name) => name !== method) ?? [];
      if (!algorithms || names.length === 0) return [];
      const key = algorithms.key.join('.');
      return ` ${names.map(code).join(', ')} mean ${code(method)} with \`${key}\` of that name.`;
    })
    .join('');
}

function keyTable(section: Outline): string {
  const head = '| key | value | default | meaning |\n| --- | --- | --- | --- |';
  return [head, ...rows(section, '')].join('\n');
}

function rows(section: Outline, prefix: string): string[] {
  return Object.entries(sectionOf(section)?.properties ?? {}).flatMap(([key, node]) => {
    const name = `${prefix}${key}`;
    const inner = sectionOf(node);
    const nested = inner?.properties ? rows(inner, `${name}.`) : [];
    if (nested.length > 0 && isSectionOnly(node))
      return [`| ${code(name)} | | | ${cell(node.description)} |`, ...nested];
    const required = sectionOf(section)?.required?.includes(key);
    const fallback =
      node.default !== undefined ? code(JSON.stringify(node.default)) : required ? 'required' : '';
    return [
      `| ${code(name)} | ${cell(valueCell(node))} | ${fallback} | ${cell(node.description)} |`,
      ...nested,
    ];
  });
}

function valueCell(node: Outline): string {
  return node.enum ? node.enum.map(code).join(', ') : expectation(node);
}

function isSectionOnly(node: Outline): boolean {
  return node.oneOf !== undefined || (node.type === 'object' && node.properties !== undefined);
}

function sameKeys(a: Outline, b: Outline): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

function cell(content = ''): string {
  return content.replaceAll('|', '\\|').replaceAll('\n', ' ');
}

function code(content: string): string {
  return `\`${content}\``;
}
