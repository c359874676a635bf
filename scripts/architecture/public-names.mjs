// The names that `import … from 'steptrain'` offers.
import ts from 'typescript';
import { placeOf } from './sources.mjs';

/** A line for each name. */
export function publicNames(sources) {
  const file = sources.get('src/entries/index.ts');
  return (file?.statements ?? []).flatMap((statement) => {
    if (!ts.isExportDeclaration(statement) || !statement.exportClause) return [];
    const { exportClause } = statement;
    const names = ts.isNamedExports(exportClause)
      ? exportClause.elements.map(({ name }) => name.text)
      : [exportClause.name.text];
    return names.map(
      (name) =>
        `${placeOf(statement)}: ${name}; names that few users need belong to src/entries/ops.ts or src/entries/train.ts`,
    );
  });
}
