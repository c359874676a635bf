// What ptxas made of the kernels that are Hopper's alone: for each, how many instructions of those kinds that it must have, its
// registers, local memory, and what ptxas noted of its products (C7510 to C7520: that they wait for each other, or that it
// added an arrive). A compiler that serialises products or spills says so in passing, and no test without a GPU fails;
// here a number that changed does.
//   npm run test:code             compares with docs/kernels/compiled-code.md, after `npm run build -- --all`
//   npm run test:code -- --write  writes it, after a change of a kernel that was looked at
// Needs the nvcc that the page names, since each allots registers in its own way, and cuobjdump: beside it, on the PATH or
// named by STEPTRAIN_CUOBJDUMP. Without them it says so and compares nothing.
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const path = join(root, 'docs/kernels/compiled-code.md');

/** wgmma, loads and stores by TMA, copies and sums of its that have no box, setmaxnreg; and accesses of local memory. */
const COUNTED = ['HGMMA', 'UTMALDG', 'UTMASTG', 'UBLKCP', 'UBLKRED', 'USETMAXREG', 'LDL', 'STL'];

function leave(message) {
  console.log(`compiled code: not compared, since ${message}`);
  process.exit(0);
}

/** The commands of the last build for the files of sm_90a alone, for another output. */
function commands() {
  const list = join(root, 'build/compile_commands.json');
  const all = existsSync(list) ? JSON.parse(readFileSync(list, 'utf8')) : [];
  return all
    .filter(({ file }) => /\/sm90_[^/]*\.cu$/.test(file))
    .map(({ file, command, directory }) => {
      const words = command.split(' ').filter(Boolean);
      const [, output] = words.splice(words.indexOf('-o'), 2);
      return { file, directory, words, output };
    });
}

function cuobjdump(nvcc) {
  const beside = join(dirname(nvcc), 'cuobjdump');
  const named = process.env.STEPTRAIN_CUOBJDUMP ?? (existsSync(beside) ? beside : 'cuobjdump');
  return spawnSync(named, ['--version']).status === 0 ? named : undefined;
}

/** What the compiler said; ccache, where the build had it, says it again for the same arguments. */
function compiled({ words, directory, output }, object) {
  const lists = ['-MD', '-MT', output, '-MF', `${object}.d`]; // as CMake asks for
  const [command, ...args] = [...launcher, ...words, ...lists, '-o', object];
  return new Promise((done, fail) => {
    const child = spawn(command, args, { cwd: directory, stdio: ['ignore', 'pipe', 'pipe'] });
    let said = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (said += text));
    child.on('close', (code) => (code === 0 ? done(said) : fail(new Error(said))));
  });
}

const demangled = (names) =>
  execFileSync('c++filt', names, { encoding: 'utf8' })
    .trim()
    .split('\n')
    // Without what a file has of its own, arguments, and the namespaces.
    .map((name) =>
      name
        .replaceAll(/\(anonymous namespace\)::|steptrain::|cuda::|hopper::|^void /g, '')
        .replace(/\([^()]*\)$/, '')
        .replace(/\((?:int|bool|[\w:]+)\)(?=\d)/g, ''),
    );

/** Rows of the kernels in an object, by mangled name. */
function kernelsOf(object, dump) {
  const of = (...options) =>
    execFileSync(dump, [...options, object], { encoding: 'utf8', maxBuffer: 1 << 30 });
  const rows = new Map();
  let row;
  for (const line of of('-sass').split('\n')) {
    const name = /^\s+Function : (\S+)/.exec(line)?.[1];
    if (name) {
      row = Object.fromEntries(COUNTED.map((kind) => [kind, 0]));
      rows.set(name, row);
    }
    const kind = /^\s+\/\*[0-9a-f]{4,}\*\/\s+(?:@!?\w+\s+)?(\w+)/.exec(line)?.[1];
    if (kind in (row ?? {})) row[kind]++;
  }
  let name;
  for (const line of of('-res-usage').split('\n')) {
    name = /Function (\S+):/.exec(line)?.[1] ?? name;
    const found = /REG:(\d+) STACK:(\d+) .*LOCAL:(\d+)/.exec(line);
    if (!found || !rows.has(name)) continue;
    const [, registers, stack, local] = found.map(Number);
    Object.assign(rows.get(name), { registers, stack, local });
  }
  return rows;
}

const COLUMNS = [...COUNTED, 'registers', 'stack', 'local', 'notes'];

/** A row of the table. */
const lineOf = (kernel, row) =>
  `| \`${kernel}\` | ${COLUMNS.map((column) => row[column] || '–').join(' | ')} |`;

async function rowsOf(command, folder, dump) {
  const object = join(folder, `${basename(command.file)}.o`);
  const said = await compiled(command, object);
  const rows = kernelsOf(object, dump);
  for (const line of said.split('\n').filter((text) => /\(C75\d\d\)/.test(text))) {
    const code = /C75\d\d/.exec(line)[0];
    const of = [...rows.keys()].find((name) => line.includes(name));
    const row = rows.get(of) ?? rows.values().next().value;
    if (row) row.notes = [...(row.notes?.split(', ') ?? []), code].sort().join(', ');
  }
  const names = demangled([...rows.keys()]);
  const file = relative(dirname(command.directory), command.file);
  return [...rows.values()].map((row, i) => lineOf(`${file}: ${names[i]}`, row));
}

const page = (lines) => `# What ptxas makes of Hopper's kernels

Of each kernel of sm_90a: instructions that are products of warpgroups (HGMMA), loads and stores of boxes by
TMA (UTMALDG, UTMASTG), its copies and sums without a box (UBLKCP, UBLKRED), \`setmaxnreg\` (USETMAXREG), and
accesses of local memory (LDL, STL); registers of a thread at launch, bytes of stack and of local memory; and
what ptxas noted of its products: C7519 is an arrive that it added, C7510 to C7518 and C7520 are products that
wait for each other. By nvcc ${version}. \`npm run test:code -- --write\` wrote it; \`npm run test:code\`
compares.

| kernel | ${COLUMNS.join(' | ')} |
| --- |${' --- |'.repeat(COLUMNS.length)}
${lines.join('\n')}
`;

const found = commands();
if (found.length === 0)
  leave('the last build had no CUDA for sm_90a (STEPTRAIN_CUDA=1 npm run build -- --all)');
const [nvcc] = found[0].words.filter((word) => /nvcc$/.test(word));
const version = /V(\d+\.\d+\.\d+)/.exec(execFileSync(nvcc, ['--version'], { encoding: 'utf8' }))?.[1];
const writes = process.argv.includes('--write');
const before = existsSync(path) ? readFileSync(path, 'utf8') : '';
const of = /nvcc (\d+\.\d+\.\d+)/.exec(before)?.[1];
if (!writes && of !== version) leave(`nvcc is ${version}, and ${relative(root, path)} is of ${of}`);
const dump = cuobjdump(nvcc);
if (!dump) leave('there is no cuobjdump (STEPTRAIN_CUOBJDUMP names one)');
const launcher =
  found[0].words[0] === nvcc && spawnSync('ccache', ['--version']).status === 0 ? ['ccache'] : [];

const folder = mkdtempSync(join(tmpdir(), 'steptrain-code-'));
const rows = [];
try {
  const waiting = [...found];
  const jobs = Number(process.env.STEPTRAIN_BUILD_JOBS) || availableParallelism();
  await Promise.all(
    Array.from({ length: jobs }, async () => {
      for (let next = waiting.shift(); next; next = waiting.shift())
        rows.push(...(await rowsOf(next, folder, dump)));
    }),
  );
} finally {
  rmSync(folder, { recursive: true });
}
rows.sort();
if (writes) {
  writeFileSync(path, page(rows));
  console.log(`${rows.length} kernels in ${relative(root, path)}`);
} else {
  const known = before.split('\n').filter((line) => line.startsWith('| `cuda/'));
  const [gone, come] = [
    known.filter((line) => !rows.includes(line)),
    rows.filter((line) => !known.includes(line)),
  ];
  for (const line of gone) console.log(`- ${line}`);
  for (const line of come) console.log(`+ ${line}`);
  console.log(
    `compiled code: ${rows.length - come.length} of ${rows.length} kernels are as in ${relative(root, path)}`,
  );
  const differs = gone.length + come.length > 0;
  if (differs) console.log('where that is meant: npm run test:code -- --write, and commit it');
  process.exit(differs ? 1 : 0);
}
