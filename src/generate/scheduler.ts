/**
 * Selects the tokens of the next forward, by order of arrival: running rows get their next token, the rest of the token
 * budget goes to chunks of prompts, and a waiting row is admitted when its pages are free. When pages run out, the youngest
 * row gives its pages back and computes them again later. The oldest row keeps its pages, and a row that would not fit
 * alone is refused, so every row ends. Where layers keep states, the tree of prefixes has copies of some, at ends of pages:
 * at the last one of a prompt, and where prompts part. A row begins at the last such place, and a chunk ends at the next.
 */
import { StepTrainError } from '../native/errors.js';
import { PAGE_TOKENS } from '../ops/cache.js';
import { type Copy, type PagePool, pagesFor } from './cache/pages.js';
import { type CachedPrefix, PrefixTree, type RoleKey } from './cache/prefixes.js';

/** A sequence that grows. */
export interface Row {
  readonly role: RoleKey;
  /**
   * The prompt and the samples so far; the caller appends. The last one is always computed: its logits are drawn from.
   */
  readonly tokens: readonly number[];
  /** Tokens with which it ends at the latest. */
  readonly longest: number;
  /** Tokens of its prompt, which other rows may begin with. Default: all. */
  readonly promptTokens?: number;
  /** Compute every token, without a cached prefix. */
  readonly fromStart?: boolean;
  /** Whether its next step depends on its last token, which must then be known before a step is queued. */
  readonly needsLast?: boolean;
}

/** Tokens `from` … `to` − 1 of a row: the next ones to compute. */
export interface Slice<R extends Row> {
  readonly row: R;
  readonly from: number;
  readonly to: number;
  /** Keys and values of the tokens before this one are in the cache, and are not written again. At least `from`. */
  readonly cached: number;
  /** One page per 64 tokens; −1 for pages before the sliding window. */
  readonly pages: readonly number[];
  /** Index of the row's states, in a model that has them. */
  readonly state: number | undefined;
}

export interface Step<R extends Row> {
  readonly slices: readonly Slice<R>[];
  /** Pages to copy before anything is written: [from, to]. */
  readonly copies: readonly Copy[];
  /** States to copy before anything is written. */
  readonly stateCopies: readonly Copy[];
}

export interface SchedulerOptions {
  /** Max tokens of one forward; at least the number of rows. */
  readonly maxTokens: number;
  /** Max rows that run together. */
  readonly maxRows: number;
  /** The largest attention window of the layers; undefined: some layer has none. */
  readonly window?: number | undefined;
  /**
   * Layers keep states, which hold what a row has read and no shorter beginning of it: each row has one place of `maxRows`, and
   * so many places after those are for prompts that begin alike. Undefined: no layer does.
   */
  readonly keptStates?: number | undefined;
}

/** States that are kept for prompts, in addition to those of `rows` rows: one for each group of so many samples. */
export function keptStatesFor(rows: number): number {
  return Math.ceil(rows / 4);
}

/** Max pages that a row of `tokens` tokens holds at a time. */
export function pagesOfRow(tokens: number, { window, maxTokens, maxRows }: SchedulerOptions): number {
  const all = pagesFor(tokens);
  if (window === undefined) return all;
  return Math.min(all, pagesFor(window + Math.max(maxTokens, maxRows)) + 1);
}

/** A running row. */
interface Placed<R extends Row> {
  readonly row: R;
  /** Tokens that need not be computed any more. */
  computed: number;
  /** Tokens whose keys and values were in the cache when the row was admitted. */
  readonly cached: number;
  readonly pages: number[];
  readonly state: number | undefined;
  /** Tokens after which its state is to be kept. */
  readonly bounds: Set<number>;
}

const NOTHING: CachedPrefix = { pages: [], tokens: 0 };

export class Scheduler<R extends Row> {
  readonly prefixes: PrefixTree;
  private readonly maxTokens: number;
  private arrivals = 0;
  private readonly order = new Map<R, number>();
  private readonly placed = new Map<R, Placed<R>>();
  /** Both by arrival. */
  private waiting: R[] = [];
  private running: Placed<R>[] = [];
  /** Places of states that no row has. */
  private readonly states: number[];
  /** Pages that the current step copies from. */
  private sources: number[] = [];

  constructor(
    private readonly pool: PagePool,
    private readonly options: SchedulerOptions,
  ) {
    const { maxTokens, maxRows, keptStates } = options;
    this.prefixes = new PrefixTree(
      pool,
      Array.from({ length: keptStates ?? 0 }, (_, i) => maxRows + i),
    );
    this.maxTokens = Math.max(maxTokens, maxRows);
    this.states = Array.from({ length: this.stateful ? maxRows : 0 }, (_, i) => maxRows - 1 - i);
  }

  private get stateful(): boolean {
    return this.options.keptStates !== undefined;
  }

  /** Rows that have not been removed. */
  get size(): number {
    return this.order.size;
  }

  /** Rows that hold pages. */
  get runningRows(): number {
    return this.running.length;
  }

  /**
   * @param longest tokens of the row whose keys and values may ever be needed
   * @throws StepTrainError where these would not fit alone
   */
  add(row: R, longest: number): void {
    const needed = pagesOfRow(longest, this.options);
    if (needed > this.pool.size) {
      throw new StepTrainError(
        'E_MEMORY',
        `${longest} tokens need ${needed} pages of the cache, and it has ${this.pool.size}`,
      );
    }
    this.order.set(row, this.arrivals++);
    this.waiting.push(row);
  }

  /**
   * The next step. Call `done` once it is queued.
   *
   * @throws StepTrainError where no row can go on, which a lost page would cause
   */
  next(): Step<R> {
    const taken = new Map<Placed<R>, number>();
    const copies: Copy[] = [];
    const stateCopies: Copy[] = [];
    let budget = this.maxTokens;
    const plan = (placed: Placed<R>) => {
      const tokens = Math.min(missing(placed), budget, toBound(placed));
      if (tokens === 0) return;
      for (const victim of this.extend(placed, placed.computed + tokens)) {
        budget += taken.get(victim) ?? 0;
        taken.delete(victim);
      }
      if (!this.placed.has(placed.row)) return;
      taken.set(placed, tokens);
      budget -= tokens;
    };
    const running = [...this.running];
    for (const one of [true, false]) {
      for (const placed of running)
        if ((missing(placed) === 1) === one && this.placed.has(placed.row)) plan(placed);
    }
    for (const row of this.waiting.slice(0, this.options.maxRows)) {
      if (budget === 0 || this.running.length >= this.options.maxRows) break;
      const prefix = row.fromStart ? NOTHING : this.cachedPrefix(row);
      const computing = row.fromStart ? undefined : this.isBeingComputed(row, prefix);
      if (computing) {
        // The running row stops at the end of the page where the two part, and plans the rest later.
        const beyond = (taken.get(computing) ?? 0) - toBound(computing);
        if (beyond > 0) {
          taken.set(computing, toBound(computing));
          budget += beyond;
        }
        continue;
      }
      const placed = this.admit(row, prefix, copies, stateCopies);
      if (!placed) break;
      plan(placed);
    }
    if (taken.size === 0 && this.size > 0) {
      const { free, size } = this.pool;
      throw new StepTrainError(
        'E_STATE',
        `generator: none of ${this.size} samples can go on with ${free} of ${size} pages free; this is a bug of steptrain`,
      );
    }
    const slices = Array.from(taken, ([{ row, computed, cached, pages, state }, tokens]) => ({
      row,
      from: computed,
      to: computed + tokens,
      cached: Math.max(computed, cached),
      pages,
      state,
    }));
    return { slices, copies, stateCopies };
  }

  /**
   * The step after the queued one, before the draws of that one are known: each row gets the token that it is drawing,
   * unless it ends with it. Undefined where the draws decide more: a row could be admitted, computes its prompt or
   * needs its last token, or pages run out. Once the draws are known, ended rows are removed and results beyond their
   * tokens are forgotten.
   */
  ahead(): Step<R> | undefined {
    const { running, waiting, options } = this;
    if (waiting.length > 0 && running.length < options.maxRows) return undefined;
    if (running.some((placed) => missing(placed) !== 0 || placed.row.needsLast)) return undefined;
    const going = running.filter(({ row, computed }) => computed + 1 < row.longest);
    for (const placed of going) {
      if (placed.pages.length >= pagesFor(placed.computed + 1)) continue;
      if (!this.reserve(1)) return undefined;
      placed.pages.push(this.pool.take() as number);
    }
    if (going.length === 0) return undefined;
    const slices = going.map(({ row, computed, pages, state }) => ({
      row,
      from: computed,
      to: computed + 1,
      cached: computed,
      pages,
      state,
    }));
    return { slices, copies: [], stateCopies: [] };
  }

  /**
   * The keys and values of a step are written, or will be before anything that is queued later. Returns states of its rows to
   * copy before anything else is queued.
   */
  done({ slices }: Step<R>): readonly Copy[] {
    for (const page of this.sources.splice(0)) this.pool.release(page);
    const kept: Copy[] = [];
    for (const { row, from, to } of slices) {
      const placed = this.placed.get(row);
      if (!placed) continue;
      placed.computed = to;
      const bound = placed.bounds.delete(to);
      if (to - from > 1 || bound) this.remember(placed);
      const place = bound ? this.prefixes.keepState(row.role, row.tokens.slice(0, to)) : undefined;
      if (place !== undefined) kept.push([placed.state as number, place]);
      this.leaveWindow(placed);
    }
    return kept;
  }

  /** Ends rows: a request may have tens of thousands that wait. Their prefixes stay cached until their pages are needed. */
  remove(rows: ReadonlySet<R>): void {
    let waits = false;
    for (const row of rows) {
      const placed = this.placed.get(row);
      if (placed) this.vacate(placed);
      waits ||= !placed;
      this.order.delete(row);
    }
    if (waits) this.waiting = this.waiting.filter((row) => !rows.has(row));
  }

  private leaveQueue(row: R): void {
    // The first one is the usual one.
    if (this.waiting[0] === row) this.waiting.shift();
    else this.waiting = this.waiting.filter((other) => other !== row);
  }

  /** Takes pages for the first `tokens` tokens. Returns the preempted rows, possibly including `placed`. */
  private extend(placed: Placed<R>, tokens: number): readonly Placed<R>[] {
    const victims: Placed<R>[] = [];
    while (placed.pages.length < pagesFor(tokens)) {
      if (this.reserve(1)) {
        placed.pages.push(this.pool.take() as number);
        continue;
      }
      const youngest = this.running.at(-1) as Placed<R>;
      victims.push(youngest);
      this.preempt(youngest);
      if (youngest === placed) break;
    }
    return victims;
  }

  /** Frees cached prefixes that no row uses until this many pages are free; false if there are not enough. */
  private reserve(pages: number): boolean {
    if (this.pool.free >= pages) return true;
    if (this.pool.free + this.prefixes.idle < pages) return false;
    while (this.pool.free < pages) this.prefixes.evict();
    return true;
  }

  /**
   * The longest cached prefix, without the last token, which is computed for its logits. A row that ends with a full
   * page shares that page all the same, since nothing more is written to it. A state is never one after the last token.
   */
  private cachedPrefix({ role, tokens }: R): CachedPrefix {
    if (tokens.length % PAGE_TOKENS === 0 && !this.stateful) {
      const whole = this.prefixes.find(role, tokens);
      if (whole.tokens === tokens.length) return whole;
    }
    return this.prefixes.find(role, tokens.slice(0, -1));
  }

  /** Starts a row with the pages of its cached prefix, if there are pages for the rest. */
  private admit(row: R, prefix: CachedPrefix, copies: Copy[], stateCopies: Copy[]): Placed<R> | undefined {
    const full = Math.floor(prefix.tokens / PAGE_TOKENS);
    const whole = { pages: prefix.pages.slice(0, full), tokens: full * PAGE_TOKENS };
    const { window } = this.options;
    // Each of the other running rows may need one more page, which has priority.
    const promised = this.running.reduce((sum, { row, pages }) => {
      const held = pages.filter((page) => page >= 0).length;
      return sum + Math.max(0, pagesOfRow(row.tokens.length + 1, this.options) - held);
    }, 0);
    // A partial page is copied or, if there is no page for the copy, computed again.
    const { stateful } = this;
    for (const { tokens, pages } of pagesFor(prefix.tokens) > full && !stateful ? [prefix, whole] : [whole]) {
      const computed = stateful ? (prefix.state?.tokens ?? 0) : Math.min(tokens, row.tokens.length - 1);
      const placed: Placed<R> = {
        row,
        computed,
        cached: tokens,
        pages: [...pages],
        state: this.states.pop(),
        bounds: new Set(stateful ? boundsOf(row, prefix, computed) : []),
      };
      for (const page of pages) this.pool.retain(page);
      this.leaveWindow(placed);
      const reach = window === undefined ? row.tokens.length : tokens + this.maxTokens;
      const needed = pagesFor(Math.min(row.tokens.length, reach)) - full;
      if (!this.reserve(needed + promised)) {
        this.release(placed);
        continue;
      }
      const source = placed.pages[full];
      if (source !== undefined) {
        const copy = this.pool.take() as number;
        copies.push([source, copy]);
        this.sources.push(source);
        placed.pages[full] = copy;
      }
      if (prefix.state) stateCopies.push([prefix.state.place, placed.state as number]);
      this.leaveQueue(row);
      this.placed.set(row, placed);
      this.running.push(placed);
      this.running.sort((a, b) => this.arrivalOf(a.row) - this.arrivalOf(b.row));
      return placed;
    }
    return undefined;
  }

  /** The running row that is about to compute at least half of the tokens that this one needs, and to keep its state there. */
  private isBeingComputed({ role, tokens }: R, cached: CachedPrefix): Placed<R> | undefined {
    const { stateful } = this;
    const ready = stateful ? (cached.state?.tokens ?? 0) : cached.tokens;
    return this.running.find(({ row, computed, bounds }) => {
      if (row.role !== role || row.tokens.length - computed <= 1) return false;
      let common = 0;
      while (common < tokens.length - 1 && tokens[common] === row.tokens[common]) common++;
      if (stateful) common -= common % PAGE_TOKENS;
      if (common <= computed || 2 * (common - ready) < tokens.length - ready) return false;
      if (stateful) bounds.add(common);
      return true;
    });
  }

  private preempt(placed: Placed<R>): void {
    this.vacate(placed);
    this.waiting.push(placed.row);
    this.waiting.sort((a, b) => this.arrivalOf(a) - this.arrivalOf(b));
  }

  private vacate(placed: Placed<R>): void {
    this.remember(placed);
    this.placed.delete(placed.row);
    this.running = this.running.filter((other) => other !== placed);
    this.release(placed);
  }

  private release({ pages, state }: Placed<R>): void {
    if (state !== undefined) this.states.push(state);
    for (const page of pages) if (page >= 0) this.pool.release(page);
  }

  private remember({ row, computed, pages }: Placed<R>): void {
    // No row begins within a page without its state.
    const tokens = this.stateful ? computed - (computed % PAGE_TOKENS) : computed;
    this.prefixes.insert(row.role, row.tokens.slice(0, tokens), pages);
  }

  /** Frees the pages that are masked for all later tokens of the row. */
  private leaveWindow({ computed, pages }: Placed<R>): void {
    const { window } = this.options;
    if (window === undefined) return;
    const first = Math.floor(Math.max(0, computed - window + 1) / PAGE_TOKENS);
    for (let i = first - 1; i >= 0 && (pages[i] as number) >= 0; i--) {
      this.pool.release(pages[i] as number);
      pages[i] = -1;
    }
  }

  private arrivalOf(row: R): number {
    return this.order.get(row) as number;
  }
}

/** Known tokens whose keys and values are not in the cache; below 0 while a step that runs ahead is queued. */
function missing<R extends Row>({ row, computed }: Placed<R>): number {
  return row.tokens.length - computed;
}

/** Tokens up to the next place where the row's state is to be kept. */
function toBound<R extends Row>({ bounds, computed }: Placed<R>): number {
  return Math.min(...Array.from(bounds, (bound) => bound - computed).filter((tokens) => tokens > 0));
}

/** Ends of pages at which others may begin: the last one of the prompt, and the one where it parts from what is cached. */
function boundsOf(row: Row, prefix: CachedPrefix, computed: number): number[] {
  const { tokens, promptTokens = tokens.length } = row;
  const whole = (count: number) => count - (count % PAGE_TOKENS);
  const bounds = [whole(Math.min(promptTokens, tokens.length) - 1)];
  if (prefix.forks) bounds.push(whole(prefix.tokens));
  return bounds.filter((bound) => bound > computed);
}
