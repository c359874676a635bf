/**
 * Token sequences whose keys and values are in the cache, so that a prompt reuses its longest cached prefix.
 * A radix tree whose edges are pages: a node is one page with the tokens that it holds, and only full pages have
 * children. Nodes that differ in one token have pages of their own. Each role has a tree of its own: keys and values
 * under another adapter, or from before an optimizer step, are another role's.
 */
import { PAGE_TOKENS } from '../../ops/cache.js';
import type { PagePool } from './pages.js';

/** The owner of a cached prefix: a role at one version of its weights. */
export type RoleKey = string;

export interface CachedPrefix {
  /** The last one holds less than a page's tokens of the prefix unless `tokens` is a multiple of a page. */
  readonly pages: readonly number[];
  readonly tokens: number;
}

interface Node {
  readonly parent: Node | undefined;
  readonly children: Node[];
  /** Tokens of the page, at most a page's. Grows in place while the row that owns the page goes on. */
  tokens: readonly number[];
  page: number;
}

export class PrefixTree {
  private readonly roots = new Map<RoleKey, Node>();
  /** Least recently used first, a node before its parent. */
  private readonly recent = new Set<Node>();

  /** The tree is one owner of every page in it. */
  constructor(private readonly pool: PagePool) {}

  /** Pages in the tree. */
  get size(): number {
    return this.recent.size;
  }

  /** The longest cached prefix of `tokens`. The caller must retain the pages before anything can evict them. */
  find(role: RoleKey, tokens: readonly number[]): CachedPrefix {
    const path: Node[] = [];
    let found = 0;
    for (let node = this.roots.get(role); node; ) {
      const { child, common } = closest(node, tokens, found);
      if (!child) break;
      path.push(child);
      found += common;
      node = common === PAGE_TOKENS ? child : undefined;
    }
    this.touch(path);
    return { pages: path.map(({ page }) => page), tokens: found };
  }

  /**
   * Remembers that `pages` hold `tokens`, in order. A prefix in the tree keeps its pages. A page below 0 is one that
   * its row gave up (a sliding window); later pages are remembered if the tree still has that one.
   */
  insert(role: RoleKey, tokens: readonly number[], pages: readonly number[]): void {
    let node = this.roots.get(role);
    if (!node) {
      node = { parent: undefined, children: [], tokens: [], page: -1 };
      this.roots.set(role, node);
    }
    const path: Node[] = [];
    for (let begin = 0; begin < tokens.length; begin += PAGE_TOKENS) {
      const held = tokens.slice(begin, begin + PAGE_TOKENS);
      const child = this.descend(node, held, pages[begin / PAGE_TOKENS] as number);
      if (!child) break;
      path.push(child);
      node = child;
    }
    this.touch(path);
  }

  /** Number of pages with no other owner, which can be freed. */
  get idle(): number {
    let count = 0;
    for (const { page } of this.recent) if (this.pool.references(page) === 1) count++;
    return count;
  }

  /**
   * Frees the page that was unused for longest and has no other owner; false where there is none. A page that others
   * follow goes only when there is no other, and takes them out of the tree: rows may own those still (a sliding
   * window).
   */
  evict(): boolean {
    let inner: Node | undefined;
    for (const node of this.recent) {
      if (this.pool.references(node.page) > 1) continue;
      if (node.children.length === 0) {
        this.drop(node);
        return true;
      }
      inner ??= node;
    }
    if (inner) this.drop(inner);
    return inner !== undefined;
  }

  /** Drops what belongs to `role`, or everything. Pages that rows still use stay theirs. */
  clear(role?: RoleKey): void {
    for (const key of role === undefined ? [...this.roots.keys()] : [role]) {
      for (const node of [...(this.roots.get(key)?.children ?? [])]) this.drop(node);
      this.roots.delete(key);
    }
  }

  /** The child of `node` that holds `tokens`, made or grown as needed; undefined where no page is given for it. */
  private descend(node: Node, tokens: readonly number[], page: number): Node | undefined {
    const { child, common } = closest(node, tokens, 0);
    if (child && common === tokens.length) return child;
    if (page < 0) return undefined;
    this.pool.retain(page);
    if (child && common === child.tokens.length) {
      // Replaces a partial page by that of a row that has continued.
      this.pool.release(child.page);
      child.tokens = tokens;
      child.page = page;
      return child;
    }
    const made = { parent: node, children: [], tokens, page };
    node.children.push(made);
    return made;
  }

  /** Marks a path from the root as just used. */
  private touch(path: readonly Node[]): void {
    for (const node of path.toReversed()) {
      this.recent.delete(node);
      this.recent.add(node);
    }
  }

  /** Removes a node and its descendants from the tree. */
  private drop(node: Node): void {
    const siblings = node.parent?.children as Node[];
    siblings.splice(siblings.indexOf(node), 1);
    const dropped = [node];
    for (const each of dropped) {
      dropped.push(...each.children);
      this.recent.delete(each);
      this.pool.release(each.page);
    }
  }
}

/** The child with the most tokens in common with `tokens` from `begin` on. */
function closest(
  node: Node,
  tokens: readonly number[],
  begin: number,
): { readonly child: Node | undefined; readonly common: number } {
  let best: Node | undefined;
  let longest = 0;
  for (const child of node.children) {
    const common = commonLength(child.tokens, tokens, begin);
    if (common <= longest) continue;
    [best, longest] = [child, common];
    if (longest === PAGE_TOKENS) break;
  }
  return { child: best, common: longest };
}

function commonLength(held: readonly number[], tokens: readonly number[], begin: number): number {
  const end = Math.min(held.length, tokens.length - begin);
  let common = 0;
  while (common < end && held[common] === tokens[begin + common]) common++;
  return common;
}
