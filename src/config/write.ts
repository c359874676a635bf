// Writes the complete configuration as YAML, with the meaning of every key; it is a valid recipe.
import { Document, isMap, isScalar, type Scalar, type YAMLMap } from 'yaml';
import { type Outline, sectionOf } from './outline.js';

const WIDTH = 110;

/** `config.yaml` of a run. `head` is written above it as a comment. */
export function formatConfig(
  config: object,
  outline: Outline,
  { head }: { readonly head?: string | undefined } = {},
): string {
  const document = new Document(config, { aliasDuplicateObjects: false });
  if (isMap(document.contents)) annotate(document.contents as YAMLMap, outline, 0);
  const body = document.toString({ lineWidth: 0, flowCollectionPadding: false });
  return head === undefined
    ? body
    : `${wrapComment(head, 0)
        .map((line) => `#${line}\n`)
        .join('')}\n${body}`;
}

function annotate(map: YAMLMap, outline: Outline, depth: number): void {
  map.items.forEach((pair, i) => {
    const key = pair.key as Scalar<string>;
    const node = outline.properties?.[key.value];
    if (node === undefined) return;
    if (node.description !== undefined) key.commentBefore = wrapComment(node.description, depth).join('\n');
    if (depth === 0 && i > 0) key.spaceBefore = true;
    const section = sectionOf(node);
    if (isMap(pair.value) && section?.properties) annotate(pair.value as YAMLMap, section, depth + 1);
    else if (pair.value && !isScalar(pair.value)) (pair.value as YAMLMap).flow = true;
  });
}

/** `text` in lines of a comment, each starting with a space. */
function wrapComment(text: string, depth: number): string[] {
  const width = WIDTH - 2 * depth - 2;
  const lines: string[] = [];
  for (const paragraph of text.split('\n')) {
    let line = '';
    for (const word of paragraph.split(' ')) {
      if (line !== '' && line.length + word.length + 1 > width) {
        lines.push(line);
        line = '';
      }
      line = `${line} ${word}`;
    }
    lines.push(line);
  }
  return lines;
}
