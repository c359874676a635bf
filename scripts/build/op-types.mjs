// Writes src/runtime/op-types.ts, the types of `device.ops`, from the signatures in core/ops.cc, whose grammar is in
// core/signature.h. The file is not committed: the build writes it, and so does `npm run op-types`.
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const WIDTH = 110;

const HEAD = `// Written by the build from the signatures in core/ops.cc.
import type { DType } from './dtype.js';

/** In the place of an optional output: a tensor to write into, or whether to make one. */
export type Wanted<Tensor> = Tensor | boolean | undefined;

/** The tensor that comes back for it. */
export type Made<Tensor, W extends Wanted<Tensor>> = W extends Tensor | true ? Tensor : undefined;

/** Every op by its name: inputs, scalars and outputs to write into go in by name, outputs come back by name. */
`;

/** The signatures as the addon has them, for those parts that types are made of. */
export function readSignatures(root) {
  const source = readFileSync(join(root, 'core/ops.cc'), 'utf8');
  const list = /kSignatures\[\] = \{(.*?)\n\};/s.exec(source)?.[1];
  if (list === undefined) throw new Error('core/ops.cc: there is no list kSignatures');
  // Adjacent texts are one.
  const texts = list.replaceAll(/^\s*\/\/.*$/gm, '').matchAll(/"[^"]*"(?:\s*"[^"]*")*/g);
  return [...texts].map(([text]) => signatureOf(text.replaceAll(/"\s*"/g, '').slice(1, -1)));
}

function signatureOf(text) {
  const [, name, inside, outputs = ''] = /^(\w+)\((.*?)\)(?: -> (.*))?$/.exec(text) ?? [];
  if (name === undefined) throw new Error(`core/ops.cc: no signature: ${text}`);
  const [inputs, scalars = ''] = inside.split(';');
  return {
    name,
    text,
    inputs: parts(inputs).map(tensorOf),
    scalars: parts(scalars).map(scalarOf),
    outputs: parts(outputs).map(tensorOf),
  };
}

/** What commas outside brackets divide. */
const parts = (text) => text.split(/,(?![^[]*\])/).flatMap((part) => part.trim() || []);

function tensorOf(text) {
  const [, name, optional] = /^&?(\w+)(\??):/.exec(text);
  return { name, optional: optional === '?' };
}

function scalarOf(text) {
  const [, name, type, fallback] = /^(\w+):([^=]+)(=.*)?$/.exec(text);
  return { name, type, isRequired: fallback === undefined };
}

function typeOf({ name, text, inputs, scalars, outputs }) {
  const wanted = outputs.filter(({ optional }) => optional).map((output) => typeName(output.name));
  const fields = [
    ...inputs.map(({ name, optional }) => (optional ? `${name}?: Tensor | undefined` : `${name}: Tensor`)),
    ...scalars.map(({ name, type, isRequired }) =>
      isRequired ? `${name}: ${scalarType(type)}` : `${name}?: ${scalarType(type)} | undefined`,
    ),
    ...outputs.map(({ name, optional }) => `${name}?: ${optional ? typeName(name) : 'Tensor | undefined'}`),
  ];
  const made = outputs.map(
    ({ name, optional }) => `${name}: ${optional ? `Made<Tensor, ${typeName(name)}>` : 'Tensor'}`,
  );
  const parameters = wanted.map((type) => `${type} extends Wanted<Tensor> = undefined`);
  const generic = parameters.length > 0 ? `<${parameters.join(', ')}>` : '';
  const result = made.length > 0 ? `{ ${made.join('; ')} }` : 'void';
  const args = fields.map((field) => `    ${field};\n`).join('');
  return `${comment(text)}  ${name}${generic}(args: {\n${args}  }): ${result};\n`;
}

const typeName = (name) => name.replace(/(?:^|_)(\w)/g, (_, letter) => letter.toUpperCase());

function scalarType(type) {
  if (type === 'f' || type === 'i') return 'number';
  if (type === 'bool') return 'boolean';
  return type === 'f32|bf16'
    ? 'DType'
    : type.replaceAll(/\w+/g, (name) => `'${name}'`).replaceAll('|', ' | ');
}

/** The signature above its type, broken between words. */
function comment(text) {
  const rows = [];
  for (const word of text.split(' ')) {
    if (rows.length > 0 && `${rows.at(-1)} ${word}`.length <= WIDTH - 5) rows[rows.length - 1] += ` ${word}`;
    else rows.push(word);
  }
  return `  /**\n${rows.map((row) => `   * ${row}\n`).join('')}   */\n`;
}

/** Leaves a file that is right as it is, since a check of types may be reading it. */
export function writeOpTypes(root) {
  const file = join(root, 'src/runtime/op-types.ts');
  const types = `${HEAD}export interface OpsOf<Tensor> {\n${readSignatures(root).map(typeOf).join('\n')}}\n`;
  let old;
  try {
    old = readFileSync(file, 'utf8');
  } catch {
    // Not there yet.
  }
  if (old === types) return;
  writeFileSync(`${file}.${process.pid}`, types);
  renameSync(`${file}.${process.pid}`, file);
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  writeOpTypes(fileURLToPath(new URL('../..', import.meta.url)));
