// Writes docs/reference/configuration.md from the schemas of the methods.

const introduction = (changeable) => `# Configuration

<!-- Written by scripts/config-docs.mjs from the sections in src/config and src/methods; edit the descriptions there. -->

A recipe is a YAML file of sections. \`steptrain run recipe.yaml --set section.key=value\` replaces single values; the
value is read as YAML, and text is taken as typed. A whole section, \`--set 'teacher={url: …}'\`, takes the place of
the recipe's, with defaults for what it leaves out. A key that does not exist is an error that names its place and the
nearest key. Every key below may be left out unless it is called required. The run directory gets \`config.yaml\`, the
merged configuration with every key, which is a recipe again.

\`extends: base.yaml\` puts a recipe on top of another one: a file beside it, or a recipe of the package by its name, such as
\`extends: quickstart\`. Sections are merged key by key; any other value, lists too, takes the place of the one below. \`method\` may
differ: sections that only the method below reads are left out. \`steptrain config show NAME\` prints the merged whole, and
\`config.yaml\` of a run is merged.

A section \`pretrained:\` of a recipe for a small model of the package has what takes the place of its values where \`model.base\` is
another model; one line says which. Recipes that extend it, and \`--set\`, stand above both.

\`optimizer:\` has what all training stages share, such as \`optimizer: {learning_rate: 3.0e-5}\`; a stage's section may have any key of
it, and names what is its own: \`sft: {learning_rate: 1.0e-3}\`. What stands in the recipe counts before defaults, and what a stage names
before what \`optimizer\` has. \`--set optimizer.save_steps=50\` sets it for every stage, whatever the recipe says. \`config.yaml\` of a run
and \`config show\` have the value of every stage in its own section.

Relative paths start at the directory in which the command runs.

## Resuming

\`steptrain run --resume DIR\` continues with the configuration, data, tokenizer and base that the run began with, and refuses what has changed (files may be
moved: \`--set data.train=NEW\`). \`--resume DIR --set key=value\` may change ${changeable.map((key) => `\`${key}\``).join(', ')}; more epochs or steps
only extend a stage that has not ended, and change its learning rates from there on; a run that has finished refuses them and says how to
train on in a new one. A key that came with a later version has its
default in a run that began before it, which one line says. A key that this version does not have is refused
by name, with what to do.
`;

/** Keys that many sections have, said once. */
const GROUPS = {
  rounds: 'The keys of rounds, of every method that learns from its own samples',
  batches: 'The keys of batches of answers',
  rollouts: 'The keys of rollout batches',
};

const HEAD = '| key | value | default | meaning |\n| --- | --- | --- | --- |';

/** Returns the writer of the page, by functions of src/: tests give those of the sources, scripts/config-docs.mjs those of the built package. */
export function pageWriter({ CHANGEABLE, expectation, grouped, methodOutline, optimization, sectionOf }) {
  /** The page as Markdown: one table per section, in the order of the schema. */
  function configurationPage(table) {
    const methodNames = Object.keys(table);
    const sections = [];
    for (const [method, schema] of Object.entries(table)) {
      for (const [key, node] of Object.entries(methodOutline(schema).properties ?? {})) {
        const known = sections.find((each) => each.key === key && sameKeys(each.node, node));
        if (known) known.methods.push(method);
        else sections.push({ key, node, methods: [method] });
      }
    }
    const parts = [
      introduction(CHANGEABLE),
      `## method\n\nRequired: ${methodNames.map(code).join(' or ')}.${aliases(table)}\n`,
    ];
    sections.sort((a, b) => Number(b.key === 'optimizer') - Number(a.key === 'optimizer'));
    for (const section of sections) {
      const { key, node, methods } = section;
      if (key === 'method') continue;
      const isFirst = sections.find((each) => each.key === key) === section;
      const title = isFirst ? key : `${key} (${methods[0]})`;
      const readBy =
        methods.length === methodNames.length ? '' : ` Read by method ${methods.map(code).join(', ')}.`;
      const whole = isSectionOnly(node) ? '' : ` Default: ${code(JSON.stringify(node.default))}.`;
      parts.push(
        `## ${title}\n\n${node.description ?? ''}${readBy}${whole}\n\n${keyTable(key === 'optimizer' ? withAgreedDefaults(node, sections) : node)}\n`,
      );
      if (key === 'optimizer') parts.push(stageDefaults(sections));
    }
    for (const [group, title] of Object.entries(GROUPS)) parts.push(groupTable(group, title, sections));
    return parts.join('\n');
  }

  const sharedKeys = (node, group) =>
    Object.entries(sectionOf(node)?.properties ?? {}).filter(([, own]) => own.shared === group);

  /** `optimizer` with the defaults that all stages share. */
  function withAgreedDefaults(node, sections) {
    const stages = sections.filter((each) => sharedKeys(each.node, 'optimizer').length > 0);
    const properties = Object.entries(node.properties ?? {}).map(([key, own]) => {
      const values = stages.flatMap((each) => sectionOf(each.node)?.properties?.[key]?.default ?? []);
      return [key, new Set(values).size === 1 ? { ...own, default: values[0] } : own];
    });
    return { ...node, properties: Object.fromEntries(properties) };
  }

  /** One row for each set of defaults that stages have, and a column for each key in which they differ. */
  function stageDefaults(sections) {
    const usual = Object.keys(optimization({ learning_rate: 1 }));
    const stages = sections.filter(({ node }) => sharedKeys(node, 'optimizer').length > 0);
    const defaultOf = ({ node }, key) => {
      const own = sectionOf(node)?.properties?.[key];
      return own === undefined ? '–' : code(JSON.stringify(own.default));
    };
    const keys = usual.filter((key) => new Set(stages.map((stage) => defaultOf(stage, key))).size > 1);
    const groups = grouped(stages, (stage) => keys.map((key) => defaultOf(stage, key)).join(' | '));
    const lines = [...groups].map(
      ([values, of]) => `| ${[...new Set(of.map(({ key }) => code(key)))].join(', ')} | ${values} |`,
    );
    const head = `| stages | ${keys.map(code).join(' | ')} |\n|${' --- |'.repeat(keys.length + 1)}`;
    return `Defaults of the stages where they differ; – where a stage has no such key:\n\n${[head, ...lines].join('\n')}\n`;
  }

  function groupTable(group, title, sections) {
    const having = sections.filter(({ node }) => sharedKeys(node, group).length > 0);
    const [first] = having;
    if (first === undefined) return '';
    const shared = sharedKeys(first.node, group).map(([key, node]) => {
      const values = grouped(having, (each) =>
        JSON.stringify(sectionOf(each.node)?.properties?.[key]?.default),
      );
      const [only] = values.keys();
      const fallback =
        values.size === 1
          ? code(only)
          : [...values]
              .map(([value, of]) => `${code(value)} in ${of.map((each) => code(each.key)).join(', ')}`)
              .join('; ');
      return `| ${code(key)} | ${cell(valueCell(node))} | ${fallback} | ${cell(node.description)} |`;
    });
    const names = [...new Set(having.map(({ key }) => code(key)))].join(', ');
    return `## ${title}\n\nIn ${names}.\n\n${[HEAD, ...shared].join('\n')}\n`;
  }

  /** Other names of methods, in a sentence each. */
  function aliases(table) {
    return Object.entries(table)
      .flatMap(([method, { algorithms }]) => {
        const names = algorithms?.names.filter((name) => name !== method) ?? [];
        if (!algorithms || names.length === 0) return [];
        const key = algorithms.key.join('.');
        return ` ${names.map(code).join(', ')} mean ${code(method)} with \`${key}\` of that name.`;
      })
      .join('');
  }

  function keyTable(section) {
    const further =
      sharedKeys(section, 'optimizer').length > 0 ? ['| any key of [`optimizer`](#optimizer) | | | |'] : [];
    return [HEAD, ...further, ...rows(section, '')].join('\n');
  }

  function rows(section, prefix) {
    return Object.entries(sectionOf(section)?.properties ?? {}).flatMap(([key, node]) => {
      if (node.shared !== undefined) return [];
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

  function valueCell(node) {
    return node.enum ? node.enum.map(code).join(', ') : expectation(node);
  }

  function isSectionOnly(node) {
    return node.oneOf !== undefined || (node.type === 'object' && node.properties !== undefined);
  }

  return configurationPage;
}

function sameKeys(a, b) {
  return JSON.stringify(a) === JSON.stringify(b);
}

function cell(content = '') {
  return content.replaceAll('|', '\\|').replaceAll('\n', ' ');
}

function code(content) {
  return `\`${content}\``;
}
