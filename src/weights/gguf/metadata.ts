/** The metadata of a GGUF file, asked for by key and type. */
import { show, WeightsError } from '../error.js';
import type { GgufFile, MetadataValue } from './file.js';

export class Metadata {
  /** `general.architecture`, such as `llama` or `qwen2`; most keys of the model begin with it. */
  readonly architecture: string;
  private readonly read = new Set<string>();

  constructor(
    readonly path: string,
    private readonly values: ReadonlyMap<string, MetadataValue>,
  ) {
    this.architecture = this.required('text', 'general.architecture');
  }

  has(key: string): boolean {
    return this.values.has(key);
  }

  text(key: string): string | undefined {
    return this.typed(key, 'a text', (value) => typeof value === 'string');
  }

  number(key: string): number | undefined {
    return this.typed(key, 'a number', (value) => typeof value === 'number');
  }

  flag(key: string): boolean | undefined {
    return this.typed(key, 'true or false', (value) => typeof value === 'boolean');
  }

  integer(key: string): number | undefined {
    return this.typed(key, 'a whole number', (value) => Number.isSafeInteger(value));
  }

  texts(key: string): readonly string[] | undefined {
    return this.typed(
      key,
      'a list of texts',
      (value) => Array.isArray(value) && value.every((each) => typeof each === 'string'),
    );
  }

  numbers(key: string): readonly number[] | undefined {
    return this.typed(
      key,
      'a list of numbers',
      (value) => Array.isArray(value) && value.every((each) => typeof each === 'number'),
    );
  }

  flags(key: string): readonly boolean[] | undefined {
    return this.typed(
      key,
      'a list of true and false',
      (value) => Array.isArray(value) && value.every((each) => typeof each === 'boolean'),
    );
  }

  /** A key of the architecture, such as `block_count`. */
  of(key: string): string {
    return `${this.architecture}.${key}`;
  }

  required<Kind extends 'text' | 'texts' | 'number' | 'numbers' | 'integer'>(kind: Kind, key: string) {
    const value = this[kind](key) as ReturnType<Metadata[Kind]>;
    return value ?? this.fail(key, 'a value');
  }

  headDim(): number {
    const given = this.integer(this.of('attention.key_length'));
    if (given !== undefined) return given;
    const [width, heads] = ['embedding_length', 'attention.head_count'].map((key) =>
      this.required('integer', this.of(key)),
    ) as [number, number];
    return width / heads;
  }

  /** Layers of the model. Those after them predict tokens further on and are not read. */
  layers(): number {
    const all = this.required('integer', this.of('block_count'));
    return all - (this.integer(this.of('nextn_predict_layers')) ?? 0);
  }

  /** The heads of the gated delta rule. Its keys are as wide as its values. */
  delta() {
    const integer = (name: string) => this.required('integer', this.of(`ssm.${name}`));
    const [keySize, keyHeads, heads] = [
      integer('state_size'),
      integer('group_count'),
      integer('time_step_rank'),
    ];
    const inner = integer('inner_size');
    if (!(keyHeads > 0) || !(heads > 0) || heads % keyHeads !== 0)
      this.fail(this.of('ssm.time_step_rank'), `a multiple of ssm.group_count (${keyHeads})`);
    if (inner !== heads * keySize)
      this.fail(this.of('ssm.inner_size'), `${heads * keySize}, ssm.time_step_rank times ssm.state_size`);
    return { keyHeads, heads, keySize, valueSize: keySize };
  }

  fail(key: string, expected: string): never {
    const value = this.values.get(key);
    const found = value === undefined ? 'nothing' : show(String(value).slice(0, 60));
    throw new WeightsError(`${this.path}: ${key}: expected ${expected}, found ${found}`);
  }

  /** Marks a key that changes nothing as read. */
  seen(key: string): void {
    this.read.add(key);
  }

  /**
   * @throws WeightsError for a key of the architecture that was not read: llama.cpp may compute something else by it
   */
  refuseUnread(): void {
    const unread = [...this.values.keys()].filter(
      (key) => key.startsWith(`${this.architecture}.`) && !this.read.has(key),
    );
    if (unread[0] !== undefined)
      this.fail(unread[0], `only keys that are known here of ${this.architecture}`);
  }

  private typed<T>(key: string, expected: string, is: (value: MetadataValue) => boolean): T | undefined {
    this.read.add(key);
    const value = this.values.get(key);
    if (value === undefined) return undefined;
    return is(value) ? (value as T) : this.fail(key, expected);
  }
}

export function metadataOf({ path, metadata }: GgufFile): Metadata {
  return new Metadata(path, metadata);
}
