/** Numbers each distinct number from 0, in about 20 bytes of each. A Map takes more, and holds at most 2^24. */
export class NumberIndex {
  private numbers: Float64Array;
  /** 1 + the index of the number in each slot, 0: none. Their count is a power of 2. */
  private slots: Int32Array;
  private count = 0;

  /** @param room numbers that can be added before more memory is taken, a power of 2 */
  constructor(room = 512) {
    this.numbers = new Float64Array(room);
    this.slots = new Int32Array(2 * room);
  }

  /** How many distinct numbers were added. */
  get size(): number {
    return this.count;
  }

  /** The index of a number, −1 if it was not added. */
  indexOf(number: number): number {
    return (this.slots[this.slotOf(number)] as number) - 1;
  }

  /** Adds a number where it is new, and gives its index. */
  add(number: number): number {
    const slot = this.slotOf(number);
    const known = this.slots[slot] as number;
    if (known > 0) return known - 1;
    if (this.count === this.numbers.length) {
      this.makeRoom();
      return this.add(number);
    }
    this.numbers[this.count++] = number;
    this.slots[slot] = this.count;
    return this.count - 1;
  }

  /** The slot of a number, or the free one that it would take. */
  private slotOf(number: number): number {
    const last = this.slots.length - 1;
    for (let slot = hashOf(number) & last; ; slot = (slot + 1) & last) {
      const index = this.slots[slot] as number;
      if (index === 0 || this.numbers[index - 1] === number) return slot;
    }
  }

  private makeRoom(): void {
    const numbers = new Float64Array(2 * this.numbers.length);
    numbers.set(this.numbers);
    this.numbers = numbers;
    this.slots = new Int32Array(2 * numbers.length);
    for (let i = 0; i < this.count; i++) this.slots[this.slotOf(numbers[i] as number)] = i + 1;
  }
}

/** 32 bits of a whole number, of which all depend on all of its bits. */
export function hashOf(number: number): number {
  let hash = number ^ Math.imul(number / 2 ** 32, 0x9e3779b1);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
