/** The types of tensors in GGUF files: how many values a block holds, in how many bytes. Facts of ggml's `ggml.h`. */

export interface BlockType {
  readonly name: string;
  /** Values of a block, along a row. */
  readonly values: number;
  readonly bytes: number;
}

const type = (name: string, values: number, bytes: number): BlockType => ({ name, values, bytes });

/** Types by ggml's number. */
const TYPES: ReadonlyMap<number, BlockType> = new Map([
  [0, type('F32', 1, 4)],
  [1, type('F16', 1, 2)],
  [2, type('Q4_0', 32, 18)],
  [3, type('Q4_1', 32, 20)],
  [6, type('Q5_0', 32, 22)],
  [7, type('Q5_1', 32, 24)],
  [8, type('Q8_0', 32, 34)],
  [10, type('Q2_K', 256, 84)],
  [11, type('Q3_K', 256, 110)],
  [12, type('Q4_K', 256, 144)],
  [13, type('Q5_K', 256, 176)],
  [14, type('Q6_K', 256, 210)],
  [20, type('IQ4_NL', 32, 18)],
  [30, type('BF16', 1, 2)],
]);

export function blockType(number: number): BlockType | undefined {
  return TYPES.get(number);
}

export function blockTypeNames(): readonly string[] {
  return [...TYPES.values()].map(({ name }) => name);
}

/** ggml's number of a type. */
export function blockTypeNumber(name: string): number {
  for (const [number, entry] of TYPES) if (entry.name === name) return number;
  throw new RangeError(`there is no type ${name}`);
}
