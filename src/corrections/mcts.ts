/**
 * Wrong steps from a tree search over the model's own steps, a baseline: a node whose roll-outs never reach the answer,
 * paired with a sibling whose roll-outs do. The corrected step is thus a branch of the search, not a slip after a right
 * prefix.
 */
import { log } from '../native/elementary.js';
import { PhiloxStream } from '../random/philox.js';
import type { StepRecord } from '../records/record.js';
import type { CorrectedStep } from './assemble.js';
import {
  asWrongStep,
  corrected,
  correctedRecords,
  keptRecords,
  type Making,
  type MakingTools,
  reaches,
} from './make.js';
import type { Prefix } from './sampler.js';
import { normalisedStep, type SourceSolution } from './solution.js';
import type { Tally } from './tally.js';

interface Node {
  readonly step: string;
  readonly parent: Node | undefined;
  readonly children: Node[];
  visits: number;
  /** Roll-outs through it that reached the answer. */
  right: number;
  /** The rest of one solution through it, the first right one where there is one. */
  rest: readonly string[] | undefined;
  isEnd: boolean;
}

interface Tree {
  readonly solution: SourceSolution;
  readonly root: Node;
  expansions: number;
}

/** A wrong step of a tree with a right sibling. */
interface Branching {
  readonly wrong: Node;
  readonly right: Node;
}

const newNode = (step: string, parent: Node | undefined): Node => ({
  step,
  parent,
  children: [],
  visits: 0,
  right: 0,
  rest: undefined,
  isEnd: false,
});

/**
 * Like `makeSamples`, from trees. The beginning and the rest of each sample are the model's own, and right by their
 * answer.
 */
export async function makeTreeSamples(
  solutions: readonly SourceSolution[],
  tools: MakingTools,
  tally: Tally,
  signal?: AbortSignal,
): Promise<readonly StepRecord[] | undefined> {
  const { settings } = tools;
  const making = { ...tools, tally, signal };
  tally.add('solutions', solutions.length);
  const trees = solutions.map(
    (solution): Tree => ({ solution, root: newNode('', undefined), expansions: 0 }),
  );
  for (let round = 0; round < settings.mcts.simulations; round++)
    if (!(await expandAll(trees, round, making))) return undefined;
  const found = trees.flatMap(({ solution, root }) =>
    branchings(root)
      .slice(0, settings.max_errors_per_solution)
      .map((branching) => ({
        wrong: branching.wrong,
        own: ownSolution(solution, branching),
        at: pathOf(branching.right).length - 1,
      })),
  );
  tally.add('wrong steps', found.length);
  const asked = found.map(({ wrong, own, at }) => asWrongStep({ solution: own, at, text: wrong.step }));
  const corrections = await corrected(asked, making);
  if (!corrections) return undefined;
  const made = found.flatMap(({ wrong, own, at }, i) => {
    const correction = corrections[i];
    if (!correction) return [];
    const step: CorrectedStep = { at, wrong: wrong.step, correction, continued: wrong.rest ?? [] };
    return [{ own, step }];
  });
  return solutions.flatMap((solution) => {
    const own = made.filter((each) => each.own.number === solution.number);
    return [
      ...keptRecords(solution, own.length > 0, settings),
      ...own.flatMap((each) => correctedRecords(each.own, [each.step], settings)),
    ];
  });
}

/** One expansion and roll-out in each tree, all together. */
async function expandAll(
  trees: readonly Tree[],
  round: number,
  { sampler, settings, seed, tally, signal }: Making,
): Promise<boolean> {
  const { mcts, sample, validate } = settings;
  const open = trees.flatMap((tree) => {
    const leaf = selected(tree.root, mcts.exploration, new PhiloxStream(seed, round, tree.solution.number));
    return leaf ? [{ tree, leaf }] : [];
  });
  const idOf = (number: number, child: number) => ((number * 256 + (round % 256)) * 17 + child) % 2 ** 32;
  const steps = await sampler.steps(
    open.map(({ tree, leaf }): Prefix => {
      return { problem: tree.solution.problem, steps: pathOf(leaf), id: idOf(tree.solution.number, 0) };
    }),
    mcts.width,
    sample,
    signal,
    'tree',
  );
  if (!steps) return false;
  const fresh = open.flatMap(({ tree, leaf }, i) => {
    const seen = new Set<string>();
    const children = (steps[i] ?? []).flatMap(({ text, ended }): Node[] => {
      const step = text.trim();
      if (!ended || step === '' || seen.has(normalisedStep(step))) return [];
      seen.add(normalisedStep(step));
      return [newNode(step, leaf)];
    });
    leaf.children.push(...children);
    leaf.isEnd = children.length === 0;
    tally.add('tree nodes', children.length);
    return children.map((node, child) => ({ tree, node, child }));
  });
  const rolled = await sampler.continuations(
    fresh.map(({ tree, node, child }) => ({
      problem: tree.solution.problem,
      steps: pathOf(node),
      id: idOf(tree.solution.number, child + 1),
    })),
    1,
    validate,
    'tree',
    signal,
  );
  if (!rolled) return false;
  for (const [i, { tree, node }] of fresh.entries()) {
    const [rest] = rolled[i] ?? [];
    const isRight = rest !== undefined && reaches(tree.solution, node.step, rest);
    if (rest?.text.trim() === '') node.isEnd = true;
    const after = rest ? sampler.split(rest.text) : [];
    let below: readonly string[] = after;
    for (let at: Node | undefined = node; at; at = at.parent) {
      at.visits++;
      if (isRight && at.right++ === 0) at.rest = below;
      at.rest ??= below;
      below = [at.step, ...below];
    }
  }
  return true;
}

/** The leaf that UCT leads to; undefined where the whole tree is at its end. */
function selected(root: Node, exploration: number, draw: PhiloxStream): Node | undefined {
  let node = root;
  while (node.children.length > 0) {
    const open = node.children.filter((child) => !child.isEnd);
    if (open.length === 0) {
      node.isEnd = true;
      return node.parent ? selected(root, exploration, draw) : undefined;
    }
    const total = log(Math.max(1, node.visits));
    const valued = open.map((child) => ({
      child,
      value:
        child.right / Math.max(1, child.visits) +
        exploration * Math.sqrt(total / Math.max(1, child.visits)) +
        1e-9 * draw.uniform(),
    }));
    node = valued.reduce((best, each) => (each.value > best.value ? each : best)).child;
  }
  return node.isEnd ? undefined : node;
}

/** The steps up to a node. */
function pathOf(node: Node): string[] {
  return node.parent ? [...pathOf(node.parent), node.step] : [];
}

/** Pairs of siblings, one with only failed roll-outs and one without; those with the most evidence come first. */
function branchings(root: Node): Branching[] {
  const found: Branching[] = [];
  const visit = (node: Node) => {
    const right = node.children.filter((child) => child.right > 0).sort((a, b) => b.right - a.right)[0];
    for (const wrong of node.children) {
      visit(wrong);
      if (right && wrong.right === 0 && wrong.visits > 0) found.push({ wrong, right });
    }
  };
  visit(root);
  return found.sort((a, b) => b.wrong.visits - a.wrong.visits);
}

/** The model's own right solution through the right branch. */
function ownSolution(solution: SourceSolution, { right }: Branching): SourceSolution {
  return { ...solution, steps: [...pathOf(right), ...(right.rest ?? [])] };
}
