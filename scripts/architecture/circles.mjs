// Files that import each other, by whatever way: values, types, dynamic imports, `import('…').Type`.
import ts from 'typescript';
import { sourceOf, walk } from './sources.mjs';

/** A line for each strongly connected group of two files or more: one shortest way round. */
export function circles(sources) {
  const graph = new Map([...sources].map(([path, file]) => [path, importsOf(path, file, sources)]));
  return groups(graph).map((group) => {
    const way = wayRound(graph, group);
    return `${way[0]}: it imports itself by ${way.slice(1).join(' → ')} (${group.length} files); move what both need to where it belongs`;
  });
}

/** The sources that a file imports. */
export function importsOf(path, file, sources) {
  const found = new Set();
  walk(file, (node) => {
    const target = specifierOf(node);
    const source = target && ts.isStringLiteralLike(target) ? sourceOf(path, target.text) : undefined;
    if (source !== undefined && source !== path && sources.has(source)) found.add(source);
  });
  return found;
}

function specifierOf(node) {
  if (ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) return node.moduleSpecifier;
  if (ts.isImportTypeNode(node)) return node.argument.literal;
  const isDynamic = ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword;
  return isDynamic ? node.arguments[0] : undefined;
}

/** Tarjan's algorithm. */
function groups(graph) {
  const order = new Map();
  const lowest = new Map();
  const stack = [];
  const onStack = new Set();
  const found = [];
  const enter = (path) => {
    order.set(path, order.size);
    lowest.set(path, order.get(path));
    stack.push(path);
    onStack.add(path);
    for (const next of graph.get(path)) {
      if (!order.has(next)) enter(next);
      if (onStack.has(next)) lowest.set(path, Math.min(lowest.get(path), lowest.get(next)));
    }
    if (lowest.get(path) !== order.get(path)) return;
    const group = stack.splice(stack.indexOf(path));
    for (const member of group) onStack.delete(member);
    if (group.length > 1) found.push(group.sort());
  };
  for (const path of graph.keys()) if (!order.has(path)) enter(path);
  return found;
}

/** From the first file of a group back to itself, breadth first. */
function wayRound(graph, [start, ...others]) {
  const inside = new Set([start, ...others]);
  const queue = [[start]];
  for (const way of queue)
    for (const next of graph.get(way.at(-1))) {
      if (next === start) return [...way, start];
      if (inside.delete(next)) queue.push([...way, next]);
    }
  return [start];
}
