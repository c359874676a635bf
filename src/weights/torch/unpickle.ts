/**
 * Reads the pickles that torch.save writes (protocol 2): tensors in containers. A pickle is a program for a stack machine that may call
 * any function of Python; this machine has the instructions that such data need, the few constructors of `values.ts`, and nothing that
 * runs. Both are what PyTorch's own `weights_only` unpickler allows, as far as state dicts use it.
 */
import { show, WeightsError } from '../error.js';
import { construct, isKnownName, Name, storageOf, Tuple, type Value } from './values.js';

const PROTOCOL = 2;
/** Longest name of a class or function. */
const MAX_NAME_BYTES = 256;
/** A tensor takes six: an empty one has one byte in the pickle, and a hundred in memory. */
const MAX_CONTAINERS = 300_000;

/**
 * The value that a pickle describes. Nothing in it takes more than a few times the bytes that describe it.
 *
 * @param where the file, for errors
 * @throws WeightsError for a pickle that is damaged, or holds anything but tensors, containers and plain values
 */
export function unpickle(bytes: Uint8Array, where: string): Value {
  return new Machine(bytes, where).run();
}

/** The effect of an instruction; it returns true where the pickle ends. */
type Instruction = (machine: Machine) => unknown;

/** Instructions by opcode, with the names of Python's pickle.py. */
const INSTRUCTIONS: Readonly<Record<number, Instruction>> = {
  // PROTO
  128: (m) => m.protocol(m.byte()),
  // STOP
  46: () => true,
  // MARK
  40: (m) => m.mark(),
  // NONE, NEWTRUE, NEWFALSE
  78: (m) => m.push(null),
  136: (m) => m.push(true),
  137: (m) => m.push(false),
  // BININT, BININT1, BININT2, LONG1, BINFLOAT
  74: (m) => m.push(m.view(4).getInt32(0, true)),
  75: (m) => m.push(m.byte()),
  77: (m) => m.push(m.view(2).getUint16(0, true)),
  138: (m) => m.push(m.long(m.byte())),
  71: (m) => m.push(m.view(8).getFloat64(0)),
  // BINUNICODE, SHORT_BINSTRING
  88: (m) => m.push(m.text(m.view(4).getUint32(0, true))),
  85: (m) => m.push(m.text(m.byte())),
  // EMPTY_TUPLE, TUPLE, TUPLE1, TUPLE2, TUPLE3
  41: (m) => m.hold(new Tuple([])),
  116: (m) => m.hold(new Tuple(m.sinceMark())),
  133: (m) => m.hold(new Tuple(m.last(1))),
  134: (m) => m.hold(new Tuple(m.last(2))),
  135: (m) => m.hold(new Tuple(m.last(3))),
  // EMPTY_LIST, APPEND, APPENDS
  93: (m) => m.hold([]),
  97: (m) => m.append(m.last(1)),
  101: (m) => m.append(m.sinceMark()),
  // EMPTY_DICT, SETITEM, SETITEMS
  125: (m) => m.hold(new Map()),
  115: (m) => m.setItems(m.last(2)),
  117: (m) => m.setItems(m.sinceMark()),
  // BINPUT, LONG_BINPUT, BINGET, LONG_BINGET
  113: (m) => m.put(m.byte()),
  114: (m) => m.put(m.view(4).getUint32(0, true)),
  104: (m) => m.get(m.byte()),
  106: (m) => m.get(m.view(4).getUint32(0, true)),
  // GLOBAL, BINPERSID, REDUCE, BUILD
  99: (m) => m.push(m.named()),
  81: (m) => m.storage(),
  82: (m) => m.reduce(),
  98: (m) => m.build(),
};

class Machine {
  #at = 0;
  #stack: Value[] = [];
  readonly #below: Value[][] = [];
  readonly #memo = new Map<number, Value>();
  #containers = 0;

  constructor(
    private readonly bytes: Uint8Array,
    private readonly where: string,
  ) {}

  run(): Value {
    for (;;) {
      const at = this.#at;
      const opcode = this.byte();
      const instruction = INSTRUCTIONS[opcode];
      if (instruction === undefined)
        this.fail(
          `the pickle has the instruction 0x${opcode.toString(16)} at byte ${at}, which data of tensors do not need; nothing of it was run`,
        );
      if (instruction(this) === true) break;
    }
    const [value] = this.last(1);
    if (this.#stack.length > 0 || this.#below.length > 0)
      this.fail('the pickle ends with more than one value');
    return value as Value;
  }

  view(bytes: number): DataView {
    if (this.#at + bytes > this.bytes.length)
      this.fail(`the pickle ends within an instruction, at byte ${this.bytes.length}`);
    this.#at += bytes;
    return new DataView(this.bytes.buffer, this.bytes.byteOffset + this.#at - bytes, bytes);
  }

  byte(): number {
    return this.view(1).getUint8(0);
  }

  text(bytes: number): string {
    const { buffer, byteOffset, byteLength } = this.view(bytes);
    return Buffer.from(buffer, byteOffset, byteLength).toString('utf8');
  }

  /** A little-endian integer in two's complement. */
  long(bytes: number): number {
    const view = this.view(bytes);
    let value = 0n;
    for (let i = bytes - 1; i >= 0; i--) value = (value << 8n) | BigInt(view.getUint8(i));
    if (bytes > 0) value = BigInt.asIntN(8 * bytes, value);
    const exact = Number(value);
    return Number.isSafeInteger(exact) ? exact : this.fail(`the integer ${show(String(value))} is too large`);
  }

  protocol(version: number): void {
    if (version !== PROTOCOL) this.fail(`expected a pickle of protocol ${PROTOCOL}, found ${version}`);
  }

  push(value: Value): void {
    this.#stack.push(value);
  }

  /** Pushes a new container, or a constructor's result. */
  hold(value: Value): void {
    if (++this.#containers > MAX_CONTAINERS)
      this.fail(`expected a pickle of at most ${MAX_CONTAINERS} containers`);
    this.push(value);
  }

  mark(): void {
    if (this.#below.length === MAX_CONTAINERS) this.fail('the pickle begins groups without end');
    this.#below.push(this.#stack);
    this.#stack = [];
  }

  sinceMark(): Value[] {
    const items = this.#stack;
    this.#stack = this.#below.pop() ?? this.fail('the pickle ends a group that it did not begin');
    return items;
  }

  /** Takes values off the stack. */
  last(count: number): Value[] {
    if (this.#stack.length < count) this.#empty();
    return this.#stack.splice(this.#stack.length - count);
  }

  append(items: readonly Value[]): void {
    const list = this.#top();
    if (!Array.isArray(list)) this.fail('the pickle appends to what is no list');
    for (const item of items) list.push(item);
  }

  setItems(items: readonly Value[]): void {
    const dict = this.#top();
    if (!(dict instanceof Map)) this.fail('the pickle sets an item of what is no dict');
    if (items.length % 2 !== 0) this.fail('the pickle has a key without a value');
    for (let i = 0; i < items.length; i += 2) {
      const key = items[i];
      if (typeof key !== 'string' && typeof key !== 'number')
        this.fail('expected the keys of dicts to be texts or numbers');
      if (dict.has(key)) this.fail(`the key ${show(key)} occurs twice in one dict`);
      dict.set(key, items[i + 1] as Value);
    }
  }

  put(index: number): void {
    this.#memo.set(index, this.#top());
  }

  get(index: number): void {
    const value = this.#memo.get(index);
    if (value === undefined) this.fail(`the pickle takes the value ${index}, which it did not put`);
    this.push(value);
  }

  named(): Name {
    const name = `${this.#line()}.${this.#line()}`;
    if (!isKnownName(name))
      this.fail(
        `the pickle names ${show(name)}, which is neither a tensor nor a container; nothing of it was run, and the file ` +
          'may be meant to harm. Take the model as safetensors',
      );
    return new Name(name);
  }

  storage(): void {
    const [id] = this.last(1);
    this.push(storageOf(id as Value) ?? this.fail('the pickle refers to what is no storage of a tensor'));
  }

  reduce(): void {
    const [name, args] = this.last(2);
    if (!(name instanceof Name) || !(args instanceof Tuple))
      this.fail('the pickle calls what is no constructor');
    const made = construct(name, args.items);
    if (made === undefined)
      this.fail(
        name.name.includes('rebuild_tensor')
          ? 'a tensor of the pickle does not lie within its storage'
          : `the pickle gives ${name.name} arguments that it does not take`,
      );
    this.hold(made);
  }

  /** The attributes of a dict (`_metadata` of state dicts), which do not concern the weights. */
  build(): void {
    this.last(1);
    if (!(this.#top() instanceof Map)) this.fail('the pickle sets attributes of what is no dict');
  }

  fail(problem: string): never {
    throw new WeightsError(`${this.where}: ${problem}`);
  }

  #top(): Value {
    return this.#stack.length > 0 ? (this.#stack.at(-1) as Value) : this.#empty();
  }

  #empty(): never {
    return this.fail('the pickle takes a value that it does not have');
  }

  #line(): string {
    const end = this.bytes.subarray(this.#at, this.#at + MAX_NAME_BYTES).indexOf(0x0a);
    if (end < 0) this.fail('the pickle names what has no end');
    const text = this.text(end);
    this.#at++;
    return text;
  }
}
