// The types of src/former-names.ts: every name of a further entry, deprecated where the main entry passes it on.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';

const FILE = 'former-names.ts';

/** The text of dist/former-names.d.ts. */
export function formerNames(root) {
  const parse = (name) => {
    const text = readFileSync(join(root, 'src', name), 'utf8');
    return ts.createSourceFile(name, text, ts.ScriptTarget.Latest).statements.filter(ts.isExportDeclaration);
  };
  const lines = parse(FILE).flatMap(({ moduleSpecifier: { text: from } }) => {
    const entry = from.slice(2, -'.js'.length);
    const names = parse(`${entry}.ts`).flatMap(({ isTypeOnly, exportClause }) =>
      exportClause.elements.map((each) => `${isTypeOnly || each.isTypeOnly ? 'type ' : ''}${each.name.text}`),
    );
    const deprecated = `/** @deprecated Import it from 'steptrain/${entry}'; the next release has it there alone. */`;
    return ['export {', ...names.flatMap((name) => [`  ${deprecated}`, `  ${name},`]), `} from '${from}';`];
  });
  return `${lines.join('\n')}\n`;
}
