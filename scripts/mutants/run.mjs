// Puts each error of list.mjs into a copy of the CUDA sources, compiles the file that it concerns for the emulator
// (test/cuda/emulator) and runs the tests that should find it, with what Hopper does beside its threads late, at once and at
// random, until one fails. Before, the same tests must pass without an error. Needs what `npm run test:emulated` built.
//   npm run test:mutants                    all; ends with "N killed of M" and writes docs/kernels/mutants.md
//   npm run test:mutants -- TEXT …          those whose names contain one of the texts
//   npm run test:mutants -- --rest          those that no run has tried on these sources, or that survived
//   npm run test:mutants -- --uncontrolled  without the tests of the unchanged sources
import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { compile, link } from '../../test/cuda/emulator/build.mjs';
import { contentHash, sources } from '../build/fresh.mjs';
import { MUTANTS } from './list.mjs';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const work = join(root, 'build/mutants');
const unchanged = join(root, 'build/emulated/build/Release/steptrain.node');
const found = join(work, 'found.json');
const list = join(root, 'docs/kernels/mutants.md');
const SEEDS = [1, 2, 3];
/** A mutant that hangs is found, too. */
const LIMIT = 20 * 60_000;

/** What the emulator does with what Hopper does beside its threads, the listed way first. */
function waysOf({ ways = 'now' }) {
  const known = ['late', 'now'].map((way) => ({ STEPTRAIN_EMULATED_ASYNC: way }));
  const random = SEEDS.map((seed) => ({
    STEPTRAIN_EMULATED_ASYNC: 'random',
    STEPTRAIN_EMULATED_SEED: String(seed),
  }));
  const isFirst = ({ STEPTRAIN_EMULATED_ASYNC: way }) => way === ways;
  const all = [...known, ...random];
  return [...all.filter(isFirst), ...all.filter((way) => !isFirst(way))];
}

/** Runs tests; their output, and whether they passed. */
function vitest(file, names, env) {
  const args = [
    'node_modules/vitest/vitest.mjs',
    'run',
    file.includes('/') ? `test/${file}` : `test/cuda/${file}`,
    '-t',
    names,
  ];
  const options = ['--bail=1', '--maxWorkers=1', '--testTimeout=600000', '--reporter=default'];
  return new Promise((done) => {
    execFile(
      process.execPath,
      [...args, ...options],
      { cwd: root, timeout: LIMIT, maxBuffer: 1 << 28, env: { ...process.env, NO_COLOR: '1', ...env } },
      (error, stdout, stderr) => done({ passed: !error, said: `${stdout}${stderr}` }),
    );
  });
}

/** What failed first, or undefined. */
async function killer(addon, { tests: [file, names], capability = 90 }, way) {
  const { passed, said } = await vitest(file, names, {
    ...way,
    STEPTRAIN_ADDON: addon,
    STEPTRAIN_EMULATED_CAPABILITY: String(capability),
  });
  if (passed && !/\d+ passed/.test(said)) throw new Error(`no test of ${file} is named ${names}`);
  if (passed) return;
  const forbidden = /emulated (?:kernel|GPU)[^\n]*?: ([^\n]*)/.exec(said)?.[1];
  const failed = /FAIL[^\n]* > ([^\n]*)/.exec(said)?.[1];
  return forbidden ? `the emulator: ${forbidden}` : failed ? `the test: ${failed}` : 'a process that ended';
}

async function mutated({ name, file, from, to, unit }, number) {
  const folder = join(work, String(number));
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  cpSync(join(root, 'cuda'), join(folder, 'cuda'), { recursive: true });
  const path = join(folder, file);
  const text = readFileSync(path, 'utf8');
  if (text.split(from).length !== 2)
    throw new Error(`"${name}": ${file} has its line ${text.split(from).length - 1} times`);
  writeFileSync(
    path,
    text.replace(from, () => to),
  );
  const addon = join(folder, 'build/Release/steptrain.node');
  mkdirSync(dirname(addon), { recursive: true });
  // Beside the copy, since a file's own folder would come before the emulator's headers.
  const objects = join(folder, 'objects');
  mkdirSync(objects);
  await link(addon, [await compile(join(folder, unit), objects, folder)]);
  return { addon, folder };
}

/** What the page says of earlier runs: [found by, date] by name. */
function earlier() {
  const text = existsSync(list) ? readFileSync(list, 'utf8') : '';
  const rows = text.matchAll(/^\| (.*) \| `cuda[^`]*` \| (.*) \| (\d{4}-\d\d-\d\d) \|$/gm);
  return Object.fromEntries([...rows].map(([, name, by, date]) => [name, [by, date]]));
}

function page(results) {
  const said = { ...earlier(), ...results };
  const rows = MUTANTS.map(({ name, file }) => {
    const [by, date] = said[name] ?? ['not run', '–'];
    return `| ${name} | \`${file}\` | ${by} | ${date} |`;
  });
  const killed = MUTANTS.filter(({ name }) => said[name] && said[name][0] !== 'nothing').length;
  const untried = MUTANTS.filter(({ name }) => !said[name]).length;
  return `# Mutants of the CUDA kernels

One-line errors in the kernels (\`scripts/mutants/list.mjs\` in a checkout has each edit), put into a copy of
the sources one at a time, and what found each on the emulator: its own check of what CUDA forbids, or a
test's. The same tests pass without an error. Written by \`npm run test:mutants\`, which compiles the one file
that an error concerns and runs the tests aimed at it, with copies and products late, at once and at random,
until one fails. Each was tried on the sources of the date beside it; a run tries all again, or some.

${killed} killed of ${MUTANTS.length}${untried > 0 ? `, ${untried} not run` : ''}.

| error | in | found by | run |
| --- | --- | --- | --- |
${rows.join('\n')}
`;
}

const args = process.argv.slice(2);
const controls = !args.includes('--uncontrolled');
const texts = args.filter((text) => !text.startsWith('--'));
if (!existsSync(unchanged))
  throw new Error('run "npm run test:emulated" first: its addon is what mutants are made of');
mkdirSync(work, { recursive: true });
// Found on other kernels, or by another emulator, they are void.
const tree = contentHash(
  root,
  sources(root, ['core', 'cuda', 'test/cuda/emulator'], ['.cc', '.h', '.cu', '.cuh']),
);
const known = existsSync(found) ? JSON.parse(readFileSync(found, 'utf8')) : {};
const results = known.tree === tree ? known.results : {};
const isLeft = ({ name }) => !results[name] || results[name][0] === 'nothing';
const chosen = MUTANTS.filter(
  ({ name }) => texts.length === 0 || texts.some((text) => name.includes(text)),
).filter((mutant) => !args.includes('--rest') || isLeft(mutant));
const controlled = new Map();
let killed = 0;

/** The tests that found a mutant must pass without it. */
function control(mutant, way) {
  const key = JSON.stringify([mutant.tests, mutant.capability, way]);
  if (!controlled.has(key)) controlled.set(key, killer(unchanged, mutant, way));
  return controlled.get(key);
}

async function attempt(mutant) {
  const { addon, folder } = await mutated(mutant, MUTANTS.indexOf(mutant) + 1);
  let by;
  for (const way of waysOf(mutant)) {
    by = await killer(addon, mutant, way);
    if (!by) continue;
    const wrong = controls && (await control(mutant, way));
    if (wrong) throw new Error(`${mutant.tests.join(', ')} fails on the unchanged sources: ${wrong}`);
    break;
  }
  if (by) killed++;
  results[mutant.name] = [by ?? 'nothing', new Date().toISOString().slice(0, 10)];
  writeFileSync(found, JSON.stringify({ tree, results }, undefined, 1));
  writeFileSync(list, page(results));
  rmSync(folder, { recursive: true, force: true });
  console.log(`${by ? 'killed  ' : 'SURVIVED'} ${mutant.name}${by ? `: ${by}` : ''}`);
}

const waiting = [...chosen];
await Promise.all(
  Array.from({ length: Number(process.env.STEPTRAIN_BUILD_JOBS) || availableParallelism() }, async () => {
    for (let next = waiting.shift(); next; next = waiting.shift())
      await attempt(next).catch(({ message }) => console.log(`FAILED   ${next.name}: ${message}`));
  }),
);
console.log(`${killed} killed of ${chosen.length}`);
process.exit(killed === chosen.length ? 0 : 1);
