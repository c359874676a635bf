// Finds tensors that were never disposed. Tensors of a scope end with it; the others are watched here: one that the
// garbage collector finds unreachable is freed, and reported once for each place that made such tensors.

/** The resources of a tensor. */
interface Held {
  readonly device: { readonly isDisposed: boolean };
  release(): void;
}

interface Watched {
  readonly held: Held;
  /** `f32 [2, 3]` */
  readonly what: () => string;
  readonly place: string;
}

/** Number of tensors found by place. */
const found = new Map<string, number>();

const registry = new FinalizationRegistry<Watched>(({ held, what, place }) => {
  if (held.device.isDisposed) return;
  held.release();
  const count = found.get(place) ?? 0;
  found.set(place, count + 1);
  // The collector hands over one tensor after the other; one line counts them.
  if (count === 0) setImmediate(() => tell(place, what()));
});

/** Watches a tensor that outlives every scope. `place`: the op that made it, and the scope that it left. */
export function watch(
  tensor: { readonly shape: readonly number[]; readonly dtype: string },
  held: Held,
  place: string,
): void {
  const { shape, dtype } = tensor;
  registry.register(tensor, { held, what: () => `${dtype} [${shape.join(', ')}]`, place }, tensor);
}

export function unwatch(tensor: object): void {
  registry.unregister(tensor);
}

function tell(place: string, first: string): void {
  const count = found.get(place) ?? 1;
  const many = count === 1 ? `a tensor (${first}) was` : `${count} tensors (the first ${first}) were`;
  process.emitWarning(
    `${many} never disposed, made by ${place}; freed now. Call dispose() on tensors, models and devices, or work inside device.scope.`,
    { code: 'STEPTRAIN_ABANDONED_TENSOR' },
  );
}
