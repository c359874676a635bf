/**
 * Values that were made lately, by key, of at most a total size. A Map that drops its oldest entry each time walks over all the
 * places of dropped ones, so half of the values go at once: those that were not asked for since the other half began.
 */
export class Recent<Key, Value> {
  private young = new Map<Key, Value>();
  private old = new Map<Key, Value>();
  /** Size of the young values. */
  private size = 0;

  /** @param sizeOf of a value with its key */
  constructor(
    private readonly limit: number,
    private readonly sizeOf: (value: Value, key: Key) => number,
  ) {}

  get(key: Key, make: () => Value): Value {
    const known = this.young.get(key);
    if (known !== undefined) return known;
    const value = this.old.get(key) ?? make();
    const size = this.sizeOf(value, key);
    if (this.size > 0 && this.size + size > this.limit / 2) {
      this.old = this.young;
      this.young = new Map();
      this.size = 0;
    }
    this.young.set(key, value);
    this.size += size;
    return value;
  }
}
