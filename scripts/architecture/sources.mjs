// The files of src/ as TypeScript parses them: no types are resolved, so that it takes a second or two.
import { readdirSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import ts from 'typescript';

/** By path, such as `src/cli/main.ts`: the parsed files below src/. */
export function readSources(root) {
  const names = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
    .map((name) => posix.join('src', name.replaceAll('\\', '/')))
    .filter((name) => name.endsWith('.ts'))
    .sort();
  return parsed(Object.fromEntries(names.map((name) => [name, readFileSync(join(root, name), 'utf8')])));
}

/** The same of texts by path. */
export function parsed(texts) {
  return new Map(
    Object.entries(texts).map(([name, text]) => [
      name,
      ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true),
    ]),
  );
}

/** Calls `visit` with a node and everything below it. */
export function walk(node, visit) {
  visit(node);
  ts.forEachChild(node, (child) => walk(child, visit));
}

/** `src/cli/main.ts:12` */
export function placeOf(node) {
  const file = node.getSourceFile();
  return `${file.fileName}:${file.getLineAndCharacterOfPosition(node.getStart()).line + 1}`;
}

/** The path of the source that `specifier` means in the file `from`; undefined for a package. */
export function sourceOf(from, specifier) {
  if (!specifier.startsWith('.')) return undefined;
  return posix.join(posix.dirname(from), specifier).replace(/\.js$/, '.ts');
}
