// A device through the addon's own interface, for gpu-smoke.mjs: no packages, no dist/. Tensors are
// { handle, shape, dtype }.
import { createRequire } from 'node:module';

const DTYPES = ['f32', 'bf16', 'i32', 'u8'];
const TENSORS = 1;
const SCALARS = 17;
const OUTPUTS = 34;

let addon;
let ops;

/** Loads the addon at `path`, once. */
export function load(path) {
  addon = createRequire(import.meta.url)(path);
  addon.initialize((code, message) => Object.assign(new Error(message), { code }));
  ops = new Map(addon.signatures().map(parsed));
  return addon;
}

/** Names of an op's tensors and scalars, and which outputs are optional. */
function parsed(text, id) {
  const [head, outputs = ''] = text.split(') ->');
  const [inputs, scalars = ''] = head
    .slice(head.indexOf('(') + 1)
    .replace(/\)$/, '')
    .split(';');
  const names = (list) =>
    list
      .replace(/\[[^\]]*\]/g, '')
      .split(',')
      .map((item) => item.trim())
      .filter(Boolean)
      .map((item) => ({
        name: item.replace(/^&/, '').replace(/\??:.*/, ''),
        optional: item.includes('?:'),
      }));
  return [
    text.slice(0, text.indexOf('(')),
    { id, inputs: names(inputs), scalars: names(scalars), outputs: names(outputs) },
  ];
}

export class Bare {
  constructor(name) {
    this.commands = new Float64Array(addon.commandLength);
    this.native = new addon.Device(name, 0, '', this.commands);
  }
  tensor(values, shape, dtype = 'f32') {
    const handle = this.native.allocate(DTYPES.indexOf(dtype), shape);
    this.native.upload(handle, dtype === 'bf16' ? toBf16(values) : values);
    return { handle, shape, dtype };
  }
  empty(shape, dtype = 'f32') {
    return { handle: this.native.allocate(DTYPES.indexOf(dtype), shape), shape, dtype };
  }
  op(name, tensors, scalars = {}, wanted = []) {
    const op = ops.get(name);
    const all = [...op.inputs, ...op.outputs];
    this.commands[0] = op.id;
    all.forEach(({ name: tensor, optional }, i) => {
      const output = i >= op.inputs.length;
      const allocate = output && (!optional || wanted.includes(tensor));
      this.commands[TENSORS + i] = tensors[tensor]?.handle ?? (allocate ? -1 : 0);
    });
    op.scalars.forEach(({ name: scalar }, i) => {
      this.commands[SCALARS + i] = scalars[scalar] ?? 0;
    });
    this.native.enqueue();
    const made = {};
    op.outputs.forEach(({ name: tensor }, i) => {
      const handle = this.commands[TENSORS + op.inputs.length + i];
      if (handle === 0 || tensors[tensor]) return;
      const [rank, ...rest] = this.commands.subarray(OUTPUTS + 6 * i, OUTPUTS + 6 * i + 6);
      made[tensor] = { handle, shape: rest.slice(0, rank), dtype: DTYPES[rest[4]] };
    });
    return made;
  }
  async bytes(tensor) {
    return Buffer.from(await this.native.download(tensor.handle));
  }
  async floats(tensor) {
    const buffer = await this.native.download(tensor.handle);
    return tensor.dtype === 'bf16' ? fromBf16(new Uint16Array(buffer)) : new Float32Array(buffer);
  }
}

function toBf16(values) {
  const bits = new Uint32Array(Float32Array.from(values).buffer);
  return Uint16Array.from(bits, (b) => (b + 0x7fff + ((b >>> 16) & 1)) >>> 16);
}
function fromBf16(halves) {
  return new Float32Array(Uint32Array.from(halves, (h) => h << 16).buffer);
}
/** Reproducible numbers in [-1, 1). */
export function random(length, seed = 1) {
  return Float32Array.from({ length }, (_, i) => {
    let h = Math.imul(i + 1, 0x9e3779b1) ^ Math.imul(seed, 0x85ebca77);
    h = Math.imul(h ^ (h >>> 16), 0x7feb352d);
    h = Math.imul(h ^ (h >>> 15), 0x846ca68b);
    return ((h ^ (h >>> 16)) >>> 0) / 2 ** 31 - 1;
  });
}
