// Writes src/runtime/op-types.ts, the types of `device.ops`, from the signatures that the built addon has of
// core/ops.cc; with --check only says whether the file is that.
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const require = createRequire(import.meta.url);
const root = fileURLToPath(new URL('..', import.meta.url));
const file = new URL('../src/runtime/op-types.ts', import.meta.url);
const WIDTH = 110;

const HEAD = `// Written by \`npm run op-types\` from the signatures in core/ops.cc.
import type { DType } from './dtype.js';

/** In the place of an optional output: a tensor to write into, or whether to make one. */
export type Wanted<Tensor> = Tensor | boolean | undefined;

/** What comes back for it. */
export type Made<Tensor, W extends Wanted<Tensor>> = W extends Tensor | true ? Tensor : undefined;

/** Every op by its name: inputs, scalars and outputs to write into go in by name, outputs come back by name. */
`;

function typeOf({ name, text, inputs, scalars, outputs }) {
  const wanted = outputs.filter(({ optional }) => optional).map((output) => typeName(output.name));
  const fields = [
    ...inputs.map((input) =>
      input.optional ? `${input.name}?: Tensor | undefined` : `${input.name}: Tensor`,
    ),
    ...scalars.map((scalar) => {
      const type = scalarType(scalar);
      return scalar.fallback === undefined
        ? `${scalar.name}: ${type}`
        : `${scalar.name}?: ${type} | undefined`;
    }),
    ...outputs.map(({ name, optional }) => `${name}?: ${optional ? typeName(name) : 'Tensor | undefined'}`),
  ];
  const made = outputs.map(
    ({ name, optional }) => `${name}: ${optional ? `Made<Tensor, ${typeName(name)}>` : 'Tensor'}`,
  );
  const parameters = wanted.map((type) => `${type} extends Wanted<Tensor> = undefined`);
  const generic = parameters.length > 0 ? `<${parameters.join(', ')}>` : '';
  const result = made.length > 0 ? `{ ${made.join('; ')} }` : 'void';
  return `${comment(text)}${name}${generic}(args: { ${fields.join('; ')} }): ${result};\n`;
}

const typeName = (name) => name.replace(/(?:^|_)(\w)/g, (_, letter) => letter.toUpperCase());

function scalarType({ type, names }) {
  if (type === 'f' || type === 'i') return 'number';
  if (type === 'bool') return 'boolean';
  return type === 'f32|bf16' ? 'DType' : names.map((name) => `'${name}'`).join(' | ');
}

/** The signature above its type, broken between words. */
function comment(text) {
  if (text.length <= WIDTH - 10) return `  /** ${text} */\n`;
  const rows = [];
  for (const word of text.split(' ')) {
    if (rows.length > 0 && `${rows.at(-1)} ${word}`.length <= WIDTH - 5) rows[rows.length - 1] += ` ${word}`;
    else rows.push(word);
  }
  return `  /**\n${rows.map((row) => `   * ${row}\n`).join('')}   */\n`;
}

function formatted(input) {
  const args = [
    require.resolve('@biomejs/biome/bin/biome'),
    'format',
    `--stdin-file-path=${fileURLToPath(file)}`,
  ];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, {
    cwd: root,
    input,
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(stderr);
  return stdout;
}

const signatures = require(join(root, 'build/Release/steptrain.node')).signatures();
const types = formatted(`${HEAD}export interface OpsOf<Tensor> {\n${signatures.map(typeOf).join('\n')}}\n`);
if (!process.argv.includes('--check')) writeFileSync(file, types);
else if (readFileSync(file, 'utf8') !== types) {
  console.error('src/runtime/op-types.ts is not what core/ops.cc says; run: npm run op-types');
  process.exit(1);
}
