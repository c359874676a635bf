/** README.md of an adapter on the hub: its base, its training and data, and its results. */
import { parse, stringify } from 'yaml';
import { isObject } from './values.js';

export interface AdapterCard {
  /** `owner/name` on the hub. */
  readonly repo: string;
  readonly method: string;
  /** The base on the hub; undefined for a model of the package. */
  readonly base: string | undefined;
  /** Licence of the base, from its page. */
  readonly licence: string | undefined;
  /** The table of the final evaluation; absent without one. */
  readonly evaluation: string | undefined;
  /** config.yaml of the run; absent for an adapter alone. */
  readonly config: string | undefined;
  /** Version of steptrain. */
  readonly version: string;
}

/** The page, with the metadata that the hub reads. Paths of the configuration are shortened to their last part. */
export function adapterReadme({
  repo,
  method,
  base,
  licence,
  evaluation,
  config,
  version,
}: AdapterCard): string {
  const values: unknown = config === undefined ? undefined : withoutFolders(parse(config));
  const data = isObject(values) && isObject(values.data) ? values.data : {};
  const metadata = {
    library_name: 'peft',
    ...(base === undefined ? {} : { base_model: base, base_model_relation: 'adapter' }),
    ...(licence === undefined ? {} : { license: licence }),
    tags: ['steptrain', 'lora', method],
  };
  return `${[
    `---\n${stringify(metadata)}---`,
    `# ${repo.split('/')[1]}`,
    `A LoRA adapter ${base === undefined ? 'of a small model of the package steptrain' : `of [${base}](https://huggingface.co/${base})`}, ` +
      `trained with steptrain ${version}, method \`${method}\`.` +
      (licence === undefined
        ? ' The licence of its base was not found; read it there before you use this.'
        : ''),
    '## Use',
    `\`\`\`sh\nsteptrain judge ADAPTER problem.txt      # where it judges steps; ADAPTER is the folder of these files\nsteptrain generate --adapter ADAPTER "…"\n\`\`\`\n\nIt is in PEFT's format, so PEFT and what builds on it read it too.`,
    '## Data',
    describeData(data),
    ...(evaluation === undefined
      ? []
      : [
          '## Evaluation',
          'On the test part of this data, as `steptrain eval` prints it:',
          fenced(evaluation),
        ]),
    ...(values === undefined ? [] : ['## Configuration', fenced(stringify(values), 'yaml')]),
  ].join('\n\n')}\n`;
}

function describeData(data: Readonly<Record<string, unknown>>): string {
  const files = ['train', 'validation', 'test'].flatMap((part) => {
    const value = data[part];
    if (value === undefined) return [];
    const names = (Array.isArray(value) ? value : [value]).map((file) =>
      isObject(file) ? `\`${file.path}\` (weight ${file.weight})` : `\`${file}\``,
    );
    return [`- ${part}: ${names.join(', ')}`];
  });
  if (files.length > 0) return files.join('\n');
  return typeof data.source === 'string' ? `Generated: \`${data.source}\`.` : 'Unknown.';
}

function fenced(text: string, language = ''): string {
  const fence = '`'.repeat(Math.max(3, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length + 1)));
  return `${fence}${language}\n${text.trimEnd()}\n${fence}`;
}

/** The same values with absolute paths reduced to their last part: folders of a machine are private. */
function withoutFolders(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutFolders);
  if (isObject(value))
    return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, withoutFolders(child)]));
  return typeof value === 'string' && /^(\/|[A-Za-z]:[\\/])/.test(value)
    ? (value.split(/[\\/]/).findLast((part) => part !== '') ?? value)
    : value;
}
