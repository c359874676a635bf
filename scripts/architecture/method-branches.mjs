// Code that asks which method a run has. What a method is particular in belongs to its row of src/methods/table.ts.
import ts from 'typescript';
import { placeOf, walk } from './sources.mjs';

const TABLE = 'src/methods/table.ts';

/** A line for each comparison, case or list that holds a method's name against a `method`. */
export function methodBranches(sources) {
  const table = sources.get(TABLE);
  if (!table) return [];
  const names = rowsOf(table);
  const isName = (node) => ts.isStringLiteralLike(node) && names.has(node.text);
  const found = [];
  const tell = (node, name) =>
    found.push(
      `${placeOf(node)}: it asks whether the method is ${name}; give the rows of ${TABLE} a field for that`,
    );
  for (const [path, file] of sources) {
    if (path === TABLE) continue;
    walk(file, (node) => {
      if (ts.isBinaryExpression(node) && COMPARISONS.has(node.operatorToken.kind)) {
        const [left, right] = [bare(node.left), bare(node.right)];
        if (isMethod(left) && isName(right)) tell(node, right.text);
        if (isMethod(right) && isName(left)) tell(node, left.text);
      }
      if (ts.isSwitchStatement(node) && isMethod(bare(node.expression)))
        for (const { expression } of node.caseBlock.clauses)
          if (expression && isName(bare(expression))) tell(expression, bare(expression).text);
      if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)) {
        const { name, expression } = node.expression;
        const list = bare(expression);
        const [value] = node.arguments;
        if (name.text === 'includes' && ts.isArrayLiteralExpression(list) && value && isMethod(bare(value))) {
          const named = list.elements.filter(isName);
          if (named.length > 0) tell(node, named.map(({ text }) => text).join(' or '));
        }
      }
    });
  }
  return found;
}

const COMPARISONS = new Set([
  ts.SyntaxKind.EqualsEqualsEqualsToken,
  ts.SyntaxKind.ExclamationEqualsEqualsToken,
  ts.SyntaxKind.EqualsEqualsToken,
  ts.SyntaxKind.ExclamationEqualsToken,
]);

/** Without brackets, `as` and `!`. */
function bare(node) {
  const wraps =
    ts.isParenthesizedExpression(node) ||
    ts.isAsExpression(node) ||
    ts.isNonNullExpression(node) ||
    ts.isSatisfiesExpression(node);
  return wraps ? bare(node.expression) : node;
}

/** `method`, `config.method`, `config?.method`, `config['method']`. */
function isMethod(node) {
  if (ts.isIdentifier(node)) return node.text === 'method';
  if (ts.isPropertyAccessExpression(node)) return node.name.text === 'method';
  return (
    ts.isElementAccessExpression(node) &&
    ts.isStringLiteralLike(node.argumentExpression) &&
    node.argumentExpression.text === 'method'
  );
}

/** The keys of `methods`. */
function rowsOf(table) {
  const names = new Set();
  walk(table, (node) => {
    if (!ts.isVariableDeclaration(node) || node.name.getText() !== 'methods') return;
    const rows = bare(node.initializer);
    for (const row of rows.properties) if (row.name) names.add(row.name.text);
  });
  return names;
}
