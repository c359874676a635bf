/**
 * Divides the rows of a step into forwards. Rows of different adapters share one, each with its own LoRA pairs, which
 * are packed once, when a role first runs. An adapter that keeps weights whole has a forward of its own.
 */
import type { Adapter } from '../../models/adapter.js';
import { AdapterStack } from '../../models/adapter-stack.js';
import type { Decoder, Role } from '../../models/decoder.js';
import type { RoleKey } from '../cache/prefixes.js';
import type { Row, Slice } from '../scheduler.js';

/** A row with its adapter and weights. */
export interface RoleRow extends Row {
  readonly as: Pick<Role, 'adapter'>;
}

/** Slices that one forward computes. */
export interface Body<R extends RoleRow> {
  readonly slices: readonly Slice<R>[];
  /** The role whose whole weights all rows read. */
  readonly role: Role;
  readonly stack: AdapterStack | undefined;
}

/** The packed adapters of the roles that run, at the versions at which they do. */
export class Bodies {
  private stack: AdapterStack | undefined;
  private held = '';

  constructor(private readonly decoder: Decoder) {}

  /** @param running all rows that may still run, so that those who wait need no other stack */
  of<R extends RoleRow>(slices: readonly Slice<R>[], running: Iterable<RoleRow>): readonly Body<R>[] {
    const stack = this.stackOf(running);
    const bodies = new Map<Adapter | undefined, Slice<R>[]>();
    for (const slice of slices) {
      const { adapter } = slice.row.as;
      const own = adapter && this.keepsWhole(adapter) ? adapter : undefined;
      bodies.set(own, [...(bodies.get(own) ?? []), slice]);
    }
    const place = ({ row: { as } }: Slice<R>) =>
      as.adapter ? (stack?.adapters.indexOf(as.adapter) as number) : -1;
    return Array.from(bodies, ([adapter, own]) => {
      // Neighbours of one adapter are multiplied together.
      const sorted = own.toSorted((a, b) => place(a) - place(b));
      const tuned = sorted.some(({ row }) => row.as.adapter);
      return { slices: sorted, role: { adapter }, stack: tuned ? stack : undefined };
    });
  }

  /** Frees the memory of the stacks; the next run packs again. */
  release(): void {
    this.stack?.dispose();
    this.stack = undefined;
    this.held = '';
  }

  /** The same where `adapter` is packed, which is not used any more. */
  forget(adapter: Adapter): void {
    if (this.stack?.adapters.includes(adapter)) this.release();
  }

  private stackOf(running: Iterable<RoleRow>): AdapterStack | undefined {
    const adapters = new Map<RoleKey, Adapter>();
    for (const { role, as } of running) if (as.adapter) adapters.set(role, as.adapter);
    const keys = [...adapters.keys()].sort();
    if (keys.every((key) => this.held.split(' ').includes(key))) return this.stack;
    this.release();
    this.stack = new AdapterStack(this.decoder, [
      ...new Set(keys.map((key) => adapters.get(key) as Adapter)),
    ]);
    this.held = keys.join(' ');
    return this.stack;
  }

  private keepsWhole({ plan }: Adapter): boolean {
    return plan.saved.some(({ weight }) => this.decoder.weights.has(weight));
  }
}
