/**
 * Token sequences whose keys and values are in the cache, so that a prompt reuses its longest cached prefix.
 * A radix tree whose edges are pages: a node is one page with the tokens that it holds, and only full pages have
 * children. Nodes that differ in one token have pages of their own. Each role has a tree of its own: keys and values
 * under another adapter, or from before an optimizer step, are another role's. In a model whose layers keep states, some
 * nodes have a copy of the state after their page: a row can begin after those alone.
 */
import { PAGE_TOKENS } from '../../ops/cache.js';
import type { PagePool } from './pages.js';

/** The owner of a cached prefix: a role at one version of its weights. */
export type RoleKey = string;

export interface CachedPrefix {
  /** The last one holds less than a page's tokens of the prefix unless `tokens` is a multiple of a page. */
  readonly pages: readonly number[];
  readonly tokens: number;
  /** The last full page of them after which a state is kept: its tokens from the beginning, and the place of the state. */
  readonly state?: { readonly tokens: number; readonly place: number } | undefined;
  /** Whether other sequences go on from the last full page. */
  readonly forks?: boolean;
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
  /** The places of states, least recently used first. */
  private readonly states = new Map<Node, number>();
  private readonly freeStates: number[];

  /**
   * The tree is one owner of every page in it.
   *
   * @param statePlaces where states may be kept, which are the tree's alone
   */
  constructor(
    private readonly pool: PagePool,
    statePlaces: readonly number[] = [],
  ) {
    this.freeStates = statePlaces.toReversed();
  }

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
    const full = path.slice(0, Math.floor(found / PAGE_TOKENS));
    return {
      pages: path.map(({ page }) => page),
      tokens: found,
      state: this.lastState(full),
      forks: (full.at(-1)?.children.length ?? 0) > 0,
    };
  }

  /**
   * A place for the state after `tokens`, full pages in the tree; undefined where one is kept already, or none can be. It
   * was that of the state that was unused for longest.
   */
  keepState(role: RoleKey, tokens: readonly number[]): number | undefined {
    let node = this.roots.get(role);
    for (let begin = 0; begin < tokens.length && node; begin += PAGE_TOKENS) {
      const { child, common } = closest(node, tokens, begin);
      node = common === PAGE_TOKENS ? child : undefined;
    }
    if (!node?.parent || this.states.has(node)) return undefined;
    const [oldest] = this.states.keys();
    if (this.freeStates.length === 0 && oldest) this.forgetState(oldest);
    const place = this.freeStates.pop();
    if (place !== undefined) this.states.set(node, place);
    return place;
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

  /** The state after the last of these nodes that has one, as just used. */
  private lastState(path: readonly Node[]): CachedPrefix['state'] {
    const last = path.findLastIndex((node) => this.states.has(node));
    if (last < 0) return undefined;
    const node = path[last] as Node;
    const place = this.states.get(node) as number;
    this.states.delete(node);
    this.states.set(node, place);
    return { tokens: (last + 1) * PAGE_TOKENS, place };
  }

  private forgetState(node: Node): void {
    const place = this.states.get(node);
    if (place === undefined) return;
    this.states.delete(node);
    this.freeStates.push(place);
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
      this.forgetState(each);
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
