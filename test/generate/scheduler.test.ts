// The scheduler with a cache that records every write. Rows may share pages, give them back or compute them again: a
// token always reads the values that its own row would have written.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PagePool, pagesFor } from '../../src/generate/cache/pages.js';
import {
  pagesOfRow,
  type Row,
  Scheduler,
  type SchedulerOptions,
  type Step,
} from '../../src/generate/scheduler.js';
import { PAGE_TOKENS } from '../../src/ops/cache.js';

interface TestRow extends Row {
  readonly name: number;
  readonly tokens: number[];
  readonly longest: number;
  readonly arrives: number;
  /** It ends here, which the scheduler cannot foresee; default: at `longest`. */
  readonly ends?: number;
}

/** What the row draws next. */
const drawnBy = ({ name }: TestRow) => 1000 + name;

const histories = new WeakMap<Row, number[]>();

/** The keys and values of a token as a number: a hash of the role and all tokens up to it. */
function written(row: TestRow, at: number): number {
  const history = histories.get(row) ?? [];
  histories.set(row, history);
  for (let i = history.length; i <= at; i++) {
    const before = history[i - 1] ?? row.role.charCodeAt(0);
    history.push(
      (Math.imul(before, 0x9e3779b1) ^ Math.imul((row.tokens[i] ?? drawnBy(row)) + 1, 0x85ebca77)) >>> 0,
    );
  }
  return history[at] as number;
}

/** Runs the steps of a scheduler over a cache and checks the content at every read. */
class Simulation {
  readonly pool: PagePool;
  readonly scheduler: Scheduler<TestRow>;
  readonly cache = new Map<number, number>();
  /** What each place of states has read. */
  readonly states = new Map<number, number>();
  computed = 0;

  constructor(
    pages: number,
    readonly options: SchedulerOptions,
  ) {
    this.pool = new PagePool(pages);
    this.scheduler = new Scheduler(this.pool, options);
  }

  step(): Step<TestRow> {
    return this.execute(this.scheduler.next());
  }

  execute(step: Step<TestRow>): Step<TestRow> {
    const { scheduler, cache, options } = this;
    const tokens = step.slices.reduce((sum, { from, to }) => sum + to - from, 0);
    expect(tokens).toBeLessThanOrEqual(Math.max(options.maxTokens, options.maxRows));
    expect(step.slices.length).toBeLessThanOrEqual(options.maxRows);
    const copied = step.copies.flatMap(([from, to]) =>
      Array.from({ length: PAGE_TOKENS }, (_, i) => [
        to * PAGE_TOKENS + i,
        cache.get(from * PAGE_TOKENS + i) ?? -1,
      ]),
    );
    for (const [slot, value] of copied) cache.set(slot as number, value as number);
    this.copyStates(step.stateCopies);
    const stateful = options.keptStates !== undefined;
    for (const { row, from, to, state = -1 } of stateful ? step.slices : []) {
      if (state < 0 || state >= options.maxRows) throw new Error(`row ${row.name} has its state at ${state}`);
      if (from > 0 && this.states.get(state) !== written(row, from - 1))
        throw new Error(`the state of row ${row.name} is not what ${from} tokens leave`);
      this.states.set(state, written(row, to - 1));
    }
    const slots = new Set<number>();
    for (const { row, from, to, cached, pages } of step.slices) {
      expect(to).toBeGreaterThan(from);
      expect(cached).toBeGreaterThanOrEqual(from);
      for (let at = cached; at < to; at++) {
        const slot = slotOf(pages, at);
        if (slots.has(slot)) throw new Error(`two rows write slot ${slot}`);
        slots.add(slot);
        cache.set(slot, written(row, at));
      }
    }
    for (const { row, from, to, pages } of step.slices) {
      const first = options.window === undefined ? 0 : Math.max(0, from - options.window + 1);
      for (let at = first; at < to; at++) {
        if (cache.get(slotOf(pages, at)) !== written(row, at))
          throw new Error(`token ${at} of row ${row.name} is not where its pages say`);
      }
    }
    this.computed += tokens;
    this.copyStates(scheduler.done(step));
    return step;
  }

  private copyStates(copies: Step<TestRow>['stateCopies']): void {
    const { maxRows, keptStates = 0 } = this.options;
    for (const [from, to] of copies) {
      expect(Math.max(from, to)).toBeLessThan(maxRows + keptStates);
      this.states.set(to, this.states.get(from) as number);
    }
  }

  /** Samples a token for each row of a step that has reached its end. */
  sample({ slices }: Step<TestRow>): void {
    for (const { row, to } of slices) {
      const end = row.ends ?? row.longest;
      if (to < row.tokens.length || row.tokens.length >= end) continue;
      row.tokens.push(drawnBy(row));
      if (row.tokens.length >= end) this.scheduler.remove(new Set([row]));
    }
  }
}

function slotOf(pages: readonly number[], at: number): number {
  const page = pages[Math.floor(at / PAGE_TOKENS)] as number;
  if (!(page >= 0)) throw new Error(`token ${at} has no page`);
  return page * PAGE_TOKENS + (at % PAGE_TOKENS);
}

/** Prompts that share prefixes. */
const prompt = fc
  .tuple(fc.array(fc.constantFrom(1, 2), { minLength: 1, maxLength: 4 }), fc.nat(29))
  .map(([parts, cut]) => parts.flatMap((part) => Array.from({ length: 30 }, () => part)).slice(cut));

const workload = fc.record({
  rows: fc.array(
    fc.record({
      prompt,
      grows: fc.integer({ min: 1, max: 90 }),
      stops: fc.integer({ min: 0, max: 60 }),
      role: fc.constantFrom('a', 'b'),
      arrives: fc.nat(30),
    }),
    { minLength: 1, maxLength: 10 },
  ),
  /** Pages beyond those that the longest row needs alone. */
  spare: fc.constantFrom(0, 1, 3, 40),
  maxTokens: fc.integer({ min: 1, max: 100 }),
  maxRows: fc.integer({ min: 1, max: 5 }),
  window: fc.option(fc.integer({ min: 1, max: 150 }), { nil: undefined }),
  keptStates: fc.constantFrom(undefined, 0, 1, 3),
  runsAhead: fc.boolean(),
});

describe('Scheduler', () => {
  it('finishes every row within budget and pages, and never reads wrong keys or values', () => {
    fc.assert(
      fc.property(workload, ({ rows: given, spare, maxTokens, maxRows, runsAhead, ...layers }) => {
        const rows = given
          .toSorted((a, b) => a.arrives - b.arrives)
          .map(
            ({ prompt: tokens, grows, stops, role, arrives }, name): TestRow => ({
              name,
              role,
              tokens: [...tokens],
              longest: tokens.length + grows,
              ends: tokens.length + Math.max(1, grows - stops),
              arrives,
            }),
          );
        const limits = { maxTokens, maxRows, ...layers };
        const pages = spare + Math.max(...rows.map(({ longest }) => pagesOfRow(longest, limits)));
        const simulation = new Simulation(pages, limits);
        const { scheduler, pool } = simulation;
        const waiting = [...rows];
        let ahead: Step<TestRow> | undefined;
        // Many steps if one token goes at a time and rows are computed again, but never infinitely many.
        for (let time = 0; waiting.length > 0 || scheduler.size > 0; time++) {
          expect(time).toBeLessThan(20_000);
          while (waiting[0] && waiting[0].arrives <= time) {
            const row = waiting.shift() as TestRow;
            scheduler.add(row, row.longest);
          }
          if (scheduler.size === 0) continue;
          const step = ahead ?? simulation.step();
          expect(step.slices.length).toBeGreaterThan(0);
          const next = runsAhead ? scheduler.ahead() : undefined;
          ahead = next && simulation.execute(next);
          simulation.sample(step);
        }
        for (const { tokens, ends } of rows) expect(tokens).toHaveLength(ends as number);
        expect(pool.free + scheduler.prefixes.size).toBe(pool.size);
        scheduler.prefixes.clear();
        expect(pool.free).toBe(pool.size);
      }),
      { numRuns: 100 },
    );
  });

  const rowsOf = (count: number, prompt: readonly number[], longest: number) =>
    Array.from(
      { length: count },
      (_, name): TestRow => ({
        name,
        role: 'a',
        tokens: [...prompt],
        longest,
        arrives: 0,
      }),
    );

  function run(simulation: Simulation, rows: readonly TestRow[]): Step<TestRow>[] {
    for (const row of rows) simulation.scheduler.add(row, row.longest);
    const steps: Step<TestRow>[] = [];
    while (simulation.scheduler.size > 0) {
      steps.push(simulation.step());
      simulation.sample(steps.at(-1) as Step<TestRow>);
    }
    return steps;
  }

  it('computes the prompt of many samples once', () => {
    const simulation = new Simulation(400, { maxTokens: 512, maxRows: 64 });
    const prompt = Array.from({ length: 1000 }, (_, i) => i);
    run(simulation, rowsOf(64, prompt, 1003));
    // The last token of the prompt for each row but the first; then two tokens for each.
    expect(simulation.computed).toBe(1000 + 63 + 2 * 64);
    const copied = simulation.scheduler.prefixes.find('a', prompt);
    expect(copied.tokens).toBe(1000);
  });

  describe('of a model whose layers keep states', () => {
    const tokens = (length: number, seed = 0) => Array.from({ length }, (_, i) => seed * 10_000 + i);
    const limits = { maxTokens: 512, maxRows: 64, keptStates: 16 };

    it('computes the prompt of many samples once, up to its last full page', () => {
      const simulation = new Simulation(400, limits);
      run(simulation, rowsOf(64, tokens(1000), 1003));
      const rest = 1000 - 15 * PAGE_TOKENS;
      expect(simulation.computed).toBe(1000 + 63 * rest + 2 * 64);
      expect(simulation.scheduler.prefixes.find('a', tokens(1000)).state).toMatchObject({ tokens: 960 });
    });

    it('begins a prompt after the last state that is kept, and shares the pages behind it too', () => {
      const simulation = new Simulation(400, limits);
      const start = (prompt: readonly number[]) => {
        const [row] = rowsOf(1, prompt, prompt.length + 1) as [TestRow];
        simulation.scheduler.add(row, row.longest);
        const chunks: number[][] = [];
        while (simulation.scheduler.size > 0) {
          const step = simulation.step();
          for (const { from, to, cached } of step.slices) chunks.push([from, to, cached]);
          simulation.sample(step);
        }
        return chunks;
      };
      const system = tokens(300);
      expect(start([...system, ...tokens(100, 1)])).toEqual([
        [0, 384, 0],
        [384, 400, 384],
      ]);
      // The first state was kept behind what the second prompt shares; where they part, its own is.
      expect(start([...system, ...tokens(100, 2)])).toEqual([
        [0, 256, 256],
        [256, 384, 256],
        [384, 400, 384],
      ]);
      expect(start([...system, ...tokens(100, 3)])).toEqual([
        [256, 384, 256],
        [384, 400, 384],
      ]);
      expect(start([...system, ...tokens(100, 1)])).toEqual([[384, 400, 384]]);
      // Where a full page ends the prompt, its last token is computed for its logits: the state before that page counts.
      expect(start([...system, ...tokens(84, 1)])).toEqual([
        [256, 320, 320],
        [320, 384, 320],
      ]);
    });

    it('makes prompts that arrive together wait for the one that computes what they share', () => {
      const simulation = new Simulation(400, limits);
      const rows = [1, 2, 3].map(
        (seed): TestRow => ({
          name: seed,
          role: 'a',
          tokens: [...tokens(300), ...tokens(20, seed)],
          longest: 321,
          arrives: 0,
        }),
      );
      const steps = run(simulation, rows);
      expect(steps[0]?.slices.map(({ row, to }) => [row.name, to])).toEqual([[1, 256]]);
      expect(simulation.computed).toBe(320 + 2 * 64);
    });

    it('keeps no more states than it has places for, and the last ones', () => {
      const simulation = new Simulation(400, { ...limits, keptStates: 2 });
      for (const seed of [1, 2, 1, 3]) run(simulation, rowsOf(1, tokens(100, seed), 101));
      const kept = [1, 2, 3].map((seed) => simulation.scheduler.prefixes.find('a', tokens(100, seed)).state);
      expect(kept.map((state) => state?.tokens)).toEqual([64, undefined, 64]);
      expect(new Set(kept.flatMap((state) => state?.place ?? []))).toEqual(new Set([64, 65]));
      simulation.scheduler.prefixes.clear();
      run(simulation, rowsOf(1, tokens(100, 4), 101));
      expect(simulation.scheduler.prefixes.find('a', tokens(100, 4)).state?.tokens).toBe(64);
    });

    it('keeps none within what a row that starts again has drawn', () => {
      const simulation = new Simulation(400, limits);
      const [row] = rowsOf(1, tokens(300), 301) as [TestRow];
      run(simulation, [{ ...row, promptTokens: 100 }]);
      expect(simulation.scheduler.prefixes.find('a', tokens(300)).state?.tokens).toBe(64);
    });
  });

  it('computes one token of a prompt that is cached whole, in a copy of the page that is not full', () => {
    const simulation = new Simulation(40, { maxTokens: 512, maxRows: 4 });
    const prompt = Array.from({ length: 100 }, (_, i) => i);
    run(simulation, rowsOf(1, prompt, 101));
    const [again] = rowsOf(1, prompt, 101) as [TestRow];
    simulation.scheduler.add(again, again.longest);
    const { slices, copies } = simulation.step();
    expect(slices.map(({ from, to }) => [from, to])).toEqual([[99, 100]]);
    const cached = simulation.scheduler.prefixes.find('a', prompt).pages;
    expect(copies.map(([from]) => from)).toEqual([cached[1]]);
    expect(slices[0]?.pages).toEqual([cached[0], copies[0]?.[1]]);
  });

  it('shares a page that the prompt fills, computing its last token without writing it', () => {
    const simulation = new Simulation(40, { maxTokens: 512, maxRows: 8 });
    const prompt = Array.from({ length: 2 * PAGE_TOKENS }, (_, i) => i);
    const rows = rowsOf(8, prompt, prompt.length + 3);
    for (const row of rows) simulation.scheduler.add(row, row.longest);
    simulation.sample(simulation.step());
    const { slices, copies } = simulation.step();
    expect(copies).toEqual([]);
    const shared = simulation.scheduler.prefixes.find('a', prompt).pages;
    const again = slices.filter(({ cached, from }) => cached > from);
    expect(again.map(({ from, to, cached }) => [from, to, cached])).toEqual(
      rows.slice(1).map(() => [prompt.length - 1, prompt.length, prompt.length]),
    );
    expect(again.every(({ pages }) => pages.every((page, i) => page === shared[i]))).toBe(true);
  });

  it('continues running rows while it computes a prompt in chunks', () => {
    const simulation = new Simulation(40, { maxTokens: 100, maxRows: 4 });
    const [short] = rowsOf(1, [1, 2, 3], 20) as [TestRow];
    const long: TestRow = { name: 1, role: 'a', tokens: Array(1000).fill(7), longest: 1001, arrives: 0 };
    const steps = run(simulation, [short, long]);
    const both = steps.filter(({ slices }) => slices.length === 2);
    expect(both.length).toBeGreaterThanOrEqual(10);
    for (const { slices } of both.slice(1, 9))
      expect(slices.map(({ from, to }) => to - from)).toEqual([1, 99]);
  });

  it('takes pages from the youngest row if pages run out, and never from the oldest', () => {
    const simulation = new Simulation(5, { maxTokens: 64, maxRows: 4 });
    const rows = rowsOf(3, [1], 200).map((row) => ({ ...row, tokens: [row.name] }));
    for (const row of rows) simulation.scheduler.add(row, row.longest);
    const ended: number[] = [];
    let steps = 0;
    while (simulation.scheduler.size > 0) {
      const step = simulation.step();
      if (rows[0]!.tokens.length < 200) expect(step.slices[0]?.row).toBe(rows[0]);
      simulation.sample(step);
      for (const { row } of step.slices) if (row.tokens.length === 200) ended.push(row.name);
      steps++;
    }
    expect(ended).toEqual([0, 1, 2]);
    expect(steps).toBeLessThan(3 * 199);
  });

  it('reuses the pages of a row that has ended', () => {
    const simulation = new Simulation(40, { maxTokens: 512, maxRows: 4 });
    const [first] = rowsOf(1, Array(100).fill(5), 200) as [TestRow];
    run(simulation, [first]);
    const before = simulation.computed;
    const [next] = rowsOf(1, [...first.tokens, 6, 6], 203) as [TestRow];
    run(simulation, [next]);
    // The last sampled token of the first row was never computed.
    expect(simulation.computed - before).toBe(3);
  });

  it('computes every token of a row that needs it, also a cached prefix', () => {
    const simulation = new Simulation(40, { maxTokens: 512, maxRows: 4 });
    const rows = rowsOf(2, Array(100).fill(5), 101).map((row, i) => ({ ...row, fromStart: i === 1 }));
    run(simulation, rows);
    expect(simulation.computed).toBe(200);
  });

  it('drops a row that is removed while it waits or runs', () => {
    const simulation = new Simulation(10, { maxTokens: 64, maxRows: 1 });
    const [a, b, c] = rowsOf(3, [1, 2, 3], 50) as [TestRow, TestRow, TestRow];
    for (const row of [a, b, c]) simulation.scheduler.add(row, row.longest);
    simulation.sample(simulation.step());
    simulation.scheduler.remove(new Set([b]));
    simulation.scheduler.remove(new Set([a]));
    const { slices } = simulation.step();
    expect(slices.map(({ row }) => row)).toEqual([c]);
    simulation.scheduler.remove(new Set([c]));
    expect(simulation.scheduler.size).toBe(0);
    expect(simulation.step().slices).toEqual([]);
  });

  it('frees pages outside the window, and so holds a bounded number', () => {
    const window = 100;
    const simulation = new Simulation(8, { maxTokens: 64, maxRows: 1, window });
    const [row] = rowsOf(1, [1], 3000) as [TestRow];
    expect(pagesOfRow(3000, simulation.options)).toBe(pagesFor(window + 64) + 1);
    run(simulation, [row]);
    expect(row.tokens).toHaveLength(3000);
  });

  it('runs ahead of rows that decode, without those that are about to end', () => {
    const simulation = new Simulation(40, { maxTokens: 64, maxRows: 2 });
    const { scheduler } = simulation;
    const [a, b, c] = [9, 5, 9].map(
      (longest, name): TestRow => ({ name, role: 'a', tokens: [name, 0, 0], longest, arrives: 0 }),
    ) as [TestRow, TestRow, TestRow];
    for (const row of [a, b]) scheduler.add(row, row.longest);
    const rowsOf = (step: Step<TestRow> | undefined) =>
      step?.slices.map(({ row, from, to }) => [row.name, from, to]);
    const first = simulation.step();
    const second = scheduler.ahead() as Step<TestRow>;
    expect(rowsOf(second)).toEqual([
      [0, 3, 4],
      [1, 3, 4],
    ]);
    simulation.execute(second);
    simulation.sample(first);
    // b draws its last token in the second step.
    const third = scheduler.ahead() as Step<TestRow>;
    expect(rowsOf(third)).toEqual([[0, 4, 5]]);
    simulation.execute(third);
    // c could be admitted as soon as b is gone, so what the third step draws must be known before.
    scheduler.add(c, c.longest);
    simulation.sample(second);
    expect(scheduler.ahead()).toBe(undefined);
    simulation.sample(third);
    expect(rowsOf(simulation.step())).toEqual([
      [0, 5, 6],
      [2, 0, 3],
    ]);
  });

  it('does not run ahead of a prompt, of a row that needs its last token, or without pages', () => {
    const ahead = (pages: number, row: Partial<TestRow>, maxTokens = 512) => {
      const simulation = new Simulation(pages, { maxTokens, maxRows: 4 });
      const [made] = rowsOf(1, Array(64).fill(5), 70) as [TestRow];
      simulation.scheduler.add({ ...made, ...row }, 64);
      simulation.step();
      return simulation.scheduler.ahead()?.slices.length;
    };
    expect(ahead(2, {})).toBe(1);
    expect(ahead(2, { needsLast: true })).toBe(undefined);
    expect(ahead(2, {}, 60)).toBe(undefined);
    expect(ahead(1, {})).toBe(undefined);
  });

  it('refuses a row that does not fit alone', () => {
    const { scheduler } = new Simulation(4, { maxTokens: 64, maxRows: 1 });
    const [row] = rowsOf(1, [1], 257) as [TestRow];
    expect(() => scheduler.add(row, row.longest)).toThrow(
      '257 tokens need 5 pages of the cache, and it has 4',
    );
    expect(scheduler.size).toBe(0);
  });
});
