// Which functions of src/ a function calls, and those in turn.
import ts from 'typescript';
import { sourceOf, walk } from './sources.mjs';

/** In the order of a reader who follows every call, depth first: each once, by file and name. Methods of objects are not followed. */
export function callsFrom(sources, path, name) {
  const found = [];
  const seen = new Set();
  const visit = (at, name) => {
    const declared = declarationOf(sources, at, name);
    if (!declared || seen.has(declared.node)) return;
    seen.add(declared.node);
    found.push({ path: declared.path, name });
    for (const called of callsIn(declared.node)) visit(declared.path, called);
  };
  visit(path, name);
  return found;
}

/** Names of the functions that a function calls, in their order. */
function callsIn(node) {
  const names = [];
  walk(node, (each) => {
    if (ts.isCallExpression(each) && ts.isIdentifier(each.expression)) names.push(each.expression.text);
  });
  return names;
}

/** The function that a name means in a file, there or where it is imported from; undefined for what is no function of src/. */
function declarationOf(sources, path, name, depth = 0) {
  const file = sources.get(path);
  if (!file || depth > 8) return undefined;
  for (const statement of file.statements) {
    if (ts.isFunctionDeclaration(statement) && statement.name?.text === name && statement.body)
      return { path, node: statement };
    if (ts.isVariableStatement(statement))
      for (const { name: own, initializer } of statement.declarationList.declarations)
        if (own.getText() === name && initializer && ts.isArrowFunction(initializer))
          return { path, node: initializer };
    const { moduleSpecifier } = statement;
    if (!moduleSpecifier) continue;
    const elements = ts.isImportDeclaration(statement)
      ? statement.importClause?.namedBindings?.elements
      : statement.exportClause?.elements;
    for (const { name: own, propertyName } of elements ?? [])
      if (own.text === name)
        return declarationOf(
          sources,
          sourceOf(path, moduleSpecifier.text),
          propertyName?.text ?? name,
          depth + 1,
        );
  }
  return undefined;
}
