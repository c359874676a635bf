// Types that score or judge. There is one, `Scorer` of src/scoring/: whoever needs more extends it.
import ts from 'typescript';
import { placeOf, walk } from './sources.mjs';

const NAME = /(Scorer|Judge|RewardModel|Verifier)$/;
const THE_ONE = 'Scorer';

/** A line for each type of such a name that has a callable member and does not extend the one. */
export function scorers(sources) {
  const declared = new Map();
  for (const [path, file] of sources)
    walk(file, (node) => {
      if (!isType(node) || !node.name) return;
      const known = declared.get(node.name.text) ?? [];
      declared.set(node.name.text, [...known, { path, node }]);
    });
  const isOne = ({ path, node }) => node.name.text === THE_ONE && path.startsWith('src/scoring/');
  /** Whether `test` holds of a type or of what it is made of. */
  const is = (test, type, seen = new Set()) =>
    test(type) ||
    basesOf(type.node).some((base) => {
      if (seen.has(base)) return false;
      seen.add(base);
      return (declared.get(base) ?? []).some((found) => is(test, found, seen));
    });
  const isAnother = (type) =>
    NAME.test(type.node.name.text) && is(({ node }) => isCallable(node), type) && !is(isOne, type);
  return [...declared.values()]
    .flat()
    .filter(isAnother)
    .map(
      ({ node }) =>
        `${placeOf(node)}: ${node.name.text} is another interface for scoring; let it be or extend ${THE_ONE} of src/scoring/, or name it by what else it does`,
    );
}

const isType = (node) =>
  ts.isInterfaceDeclaration(node) || ts.isClassDeclaration(node) || ts.isTypeAliasDeclaration(node);

/** What it extends or is made of: `extends A`, `A & { … }`, `Pick<A, …>`. */
function basesOf(node) {
  if (!ts.isTypeAliasDeclaration(node))
    return (node.heritageClauses ?? []).flatMap(({ types }) => types.flatMap(baseOf));
  return partsOf(node.type).flatMap((part) => (ts.isTypeReferenceNode(part) ? baseOf(part) : []));
}

/** The name of a reference, and those of its arguments where it only chooses members. */
function baseOf(reference) {
  const name = (reference.typeName ?? reference.expression).getText();
  const chooses = ['Pick', 'Omit', 'Readonly', 'Partial', 'Required'].includes(name);
  const [first] = reference.typeArguments ?? [];
  return chooses && first && ts.isTypeReferenceNode(first) ? baseOf(first) : [name];
}

const partsOf = (type) => (ts.isIntersectionTypeNode(type) ? type.types : [type]);

function isCallable(node) {
  if (!ts.isTypeAliasDeclaration(node)) return node.members.some(isCallableMember);
  return partsOf(node.type).some(
    (part) => ts.isFunctionTypeNode(part) || part.members?.some(isCallableMember),
  );
}

function isCallableMember(member) {
  if (ts.isMethodSignature(member) || ts.isCallSignatureDeclaration(member) || ts.isMethodDeclaration(member))
    return true;
  return (
    member.type !== undefined && !ts.isConstructorDeclaration(member) && ts.isFunctionTypeNode(member.type)
  );
}
