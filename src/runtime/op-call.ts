/** Ops by name: for each signature of core/ops.cc a function that fills the command array and names what came back. */
import { addon, COMMAND, type OpScalar, type OpSignature } from '../native/addon.js';
import { invalid, StepTrainError } from '../native/errors.js';
import { clipped, shown } from '../native/shown.js';
import { DTYPES, type DType } from './dtype.js';
import type { OpsOf } from './op-types.js';

/** The device that the ops run on. */
interface Runner<Tensor> {
  /** Hands the filled command array to the addon. */
  enqueue(): void;
  /** The native handle of a tensor of this device; undefined for anything else. */
  handleOf(value: unknown): number | undefined;
  isTensor(value: unknown): boolean;
  adopt(handle: number, shape: readonly number[], dtype: DType, op: string): Tensor;
}

/** The members that the functions of one device use. */
interface Binding {
  readonly commands: Float64Array;
  enqueue(): void;
  handle(op: OpSignature, name: string, given: unknown): number;
  /** The tensor behind the handle that the addon left in `slot`, undefined for none; its shape and dtype lie from `at`. */
  made(slot: number, at: number, op: string): unknown;
  refuse(op: OpSignature, name: string, given: unknown): never;
}

type Call = (args: Readonly<Record<string, unknown>>) => unknown;

let compiled: (readonly [name: string, bind: (binding: Binding) => Call])[] | undefined;

/** All ops of a device. */
export function opsOf<Tensor>(commands: Float64Array, runner: Runner<Tensor>): OpsOf<Tensor> {
  const refuse = (op: OpSignature, name: string, given: unknown): never =>
    refuseArgument(op, name, given, runner.isTensor(given));
  const binding: Binding = {
    commands,
    enqueue: runner.enqueue,
    handle(op, name, given) {
      return runner.handleOf(given) ?? refuse(op, name, given);
    },
    made(slot, at, op) {
      const handle = commands[slot] as number;
      if (handle === 0) return undefined;
      const shape: number[] = [];
      for (let axis = 1; axis <= (commands[at] as number); axis++) shape.push(commands[at + axis] as number);
      return runner.adopt(handle, shape, DTYPES[commands[at + 5] as number] as DType, op);
    },
    refuse,
  };
  compiled ??= addon()
    .signatures()
    .map((op, id) => [op.name, compile(op, id)]);
  return Object.fromEntries(
    compiled.map(([name, bind]) => [name, bind(binding)]),
  ) as unknown as OpsOf<Tensor>;
}

/**
 * Writes the function of one op as straight-line code that reads every argument by its name: a loop over the names takes
 * 100 ns more a call. Callers on a hot path pass a literal that names every argument, as one made by spreading others
 * (`{ ...saved, dy }`) is far slower to make and to read.
 */
function compile(op: OpSignature, id: number): (binding: Binding) => Call {
  const inputs = op.inputs.map(({ name }, i) => {
    return `given = args.${name}; ${slot(i)} = given === undefined ? 0 : ${handle(name)};`;
  });
  const outputs = op.outputs.map(({ name, optional }, i) => {
    const absent = optional
      ? 'given === undefined || given === false ? 0 : given === true ? -1'
      : 'given === undefined ? -1';
    return `given = args.${name}; ${slot(op.inputs.length + i)} = ${absent} : ${handle(name)};`;
  });
  const scalars = op.scalars.map((scalar, i) => {
    const { name } = scalar;
    return `given = args.${name}; commands[${COMMAND.scalars + i}] = ${number(scalar)} binding.refuse(op, '${name}', given);`;
  });
  const results = op.outputs.map(({ name }, i) => {
    const made = `binding.made(${COMMAND.tensors + op.inputs.length + i}, ${COMMAND.outputs + 6 * i}, '${op.name}')`;
    return `${name}: typeof args.${name} === 'object' ? args.${name} : ${made}`;
  });
  const known = [...op.inputs, ...op.outputs, ...op.scalars].map(({ name }) => `case '${name}':`);
  const code = `
    const { commands } = binding;
    return function ${op.name}(args) {
      for (const name in args) switch (name) { ${known.join(' ')} break; default: binding.refuse(op, name); }
      let given;
      commands[0] = ${id};
      ${[...inputs, ...outputs, ...scalars].join('\n')}
      binding.enqueue();
      return { ${results.join(', ')} };
    };`;
  return (binding) => new Function('op', 'binding', code)(op, binding);
}

const slot = (tensor: number): string => `commands[${COMMAND.tensors + tensor}]`;
const handle = (name: string): string => `binding.handle(op, '${name}', given)`;

/** Code that converts `given` to a number; the branch for other values must follow it. */
function number({ type, names, fallback }: OpScalar): string {
  const absent = fallback === undefined ? '' : `given === undefined ? ${fallback} :`;
  if (type === 'f') return `typeof given === 'number' ? given : ${absent}`;
  if (type === 'i') return `Number.isInteger(given) ? given : ${absent}`;
  const literals = names.map((name) => (type === 'bool' ? name : `'${name}'`));
  return `${absent} ${literals.map((literal, i) => `given === ${literal} ? ${i} :`).join(' ')}`;
}

/** Refuses an argument that an op does not take, and names the error. */
function refuseArgument(op: OpSignature, name: string, given: unknown, isTensor: boolean): never {
  const scalar = op.scalars.find((known) => known.name === name);
  const tensor = [...op.inputs, ...op.outputs].find((known) => known.name === name);
  if (!scalar && !tensor) {
    throw invalid(`${op.name} has no argument '${clipped(name)}': ${op.text}`);
  }
  if (isTensor && tensor) {
    const foreign = `${op.name}: '${name}' is a tensor of another device: copy it over first`;
    throw new StepTrainError('E_HANDLE', foreign);
  }
  if (given === undefined) throw invalid(`${op.name}: ${name} is required: ${op.text}`);
  throw invalid(`${op.name}: ${name} must be ${expected(scalar)}, found ${shown(given)}`);
}

function expected(scalar: OpScalar | undefined): string {
  if (!scalar) return 'a tensor';
  if (scalar.type === 'f') return 'a number';
  if (scalar.type === 'i') return 'a whole number';
  return `${scalar.names.slice(0, -1).join(', ')} or ${scalar.names.at(-1)}`;
}
