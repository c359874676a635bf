import { createWriteStream, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs, stripVTControlCharacters } from 'node:util';
import { onPath } from '../build/machine.mjs';
import { call, homeOf, inRoot, makeRoot } from './root.mjs';
import { SYSTEMS } from './systems.mjs';

const USAGE = `npm run test:fresh [-- options]: README's two commands on bare systems, and a table of what came out.

Needs root, debootstrap and a network. Each system is made once, about 2 GB; the clone in it is of the last commit.
Exits with 1 where a command failed.

  --only debian-13,debian-12  systems, of ${Object.keys(SYSTEMS).join(', ')}; all by default
  --as someone                as this user, or root (default)
  --shm 64m                   size of /dev/shm, or none
  --in FOLDER                 where the systems are made (default /var/tmp/steptrain-fresh)
  --keep                      leave the clones there
  --without-tests             without npm test`;

const checkout = fileURLToPath(new URL('../..', import.meta.url));
const options = optionsOf({
  options: {
    help: { type: 'boolean', short: 'h', default: false },
    only: { type: 'string', default: Object.keys(SYSTEMS).join(',') },
    as: { type: 'string', default: 'root' },
    shm: { type: 'string', default: '64m' },
    in: { type: 'string', default: '/var/tmp/steptrain-fresh' },
    keep: { type: 'boolean', default: false },
    'without-tests': { type: 'boolean', default: false },
  },
});

if (options.help) {
  console.log(USAGE);
  process.exit(0);
}

function fail(sentence) {
  console.error(`test:fresh: ${sentence}`);
  process.exit(1);
}

function optionsOf(description) {
  try {
    return parseArgs(description).values;
  } catch (error) {
    return fail(`${error.message.split('. ')[0]}; --help shows the options`);
  }
}

const chosen = options.only.split(',');
const unknown = chosen.find((name) => !(name in SYSTEMS));
if (unknown !== undefined)
  fail(`--only expects some of ${Object.keys(SYSTEMS).join(', ')}, found ${unknown}`);
if (!['root', 'someone'].includes(options.as)) fail(`--as expects root or someone, found ${options.as}`);
if (process.getuid?.() !== 0)
  fail('it makes whole systems in folders, which only root may: sudo npm run test:fresh');
for (const tool of ['debootstrap', 'unshare', 'chroot'])
  if (!onPath(tool)) fail(`it needs ${tool}: apt-get install -y debootstrap util-linux`);

/** The first capture of `pattern` in `text`, or a dash. */
const found = (pattern, text) => pattern.exec(text)?.[1] ?? '–';

/** One row of the table: each cell by its column. Stops at the first command that fails. */
async function tryOn(name) {
  const root = join(options.in, name);
  const log = createWriteStream(`${root}.log`);
  const clone = `${homeOf(options.as)}/steptrain`;
  const row = { system: name, user: options.as };
  const sh = (line, { user = options.as, cwd = clone } = {}) =>
    inRoot(root, line, { user, cwd, shm: options.shm, log });
  const timed = async (line) => {
    console.error(`${name}: ${line}`);
    const began = Date.now();
    const result = await sh(line);
    return { ...result, minutes: `${((Date.now() - began) / 60_000).toFixed(1)} min` };
  };

  await makeRoot(root, SYSTEMS[name], { log });
  rmSync(join(root, clone), { recursive: true, force: true });
  await call('git', ['clone', '--quiet', '--no-hardlinks', checkout, join(root, clone)], { log });
  await sh(`chown -R ${options.as}: ${clone}`, { user: 'root', cwd: '/' });
  row.Node = (await sh('node --version')).output.trim();

  // Without a compiler: one sentence with the line that installs it, which is then called.
  await sh('apt-get remove -y -q g++ make cmake; apt-get autoremove -y -q', { user: 'root', cwd: '/' });
  const bare = await timed('npm ci');
  const line = found(/(apt-get update && (?:sudo )?apt-get install -y [a-z+ ]+?)(?: &&|;|$)/m, bare.output);
  row['without a compiler'] = bare.status !== 0 && line !== '–' ? 'the line that installs it' : 'NO LINE';
  if (line === '–') return row;
  await sh(`export DEBIAN_FRONTEND=noninteractive; ${line.replaceAll('sudo ', '')}`, {
    user: 'root',
    cwd: '/',
  });
  row.compiler = `g++ ${(await sh('g++ -dumpfullversion')).output.trim()}`;

  const install = await timed('npm ci');
  row['npm ci'] = install.status === 0 ? install.minutes : `FAILED (${install.status})`;
  if (install.status !== 0) return row;
  const run = await timed('npx steptrain run');
  const before = found(/^F1 macro\s+[\d.]+\s+[\d.-]+\s+[\d.]+\s+([\d.]+)/m, run.output);
  const after = found(/^F1 macro\s+([\d.]+)/m, run.output);
  row['npx steptrain run'] =
    run.status === 0 ? `${run.minutes}, F1 ${before} → ${after}` : `FAILED (${run.status})`;
  if (options['without-tests']) row['npm test'] = 'not run';
  else {
    const test = await timed('npm test');
    const tests = found(/^\s*Tests\s+(.+?)(?:\s+\(\d+\))?$/m, stripVTControlCharacters(test.output));
    row['npm test'] =
      `${test.status === 0 ? '' : 'FAILED: '}${tests.replaceAll(' | ', ', ')}, ${test.minutes}`;
  }
  log.end();
  if (!options.keep) rmSync(join(root, clone), { recursive: true, force: true });
  return row;
}

mkdirSync(options.in, { recursive: true });
const rows = [];
for (const name of chosen)
  rows.push(
    await tryOn(name).catch((error) => ({
      system: name,
      user: options.as,
      'npm ci': `FAILED: ${String(error).split('\n')[0]}`,
    })),
  );
const columns = [
  'system',
  'user',
  'Node',
  'compiler',
  'without a compiler',
  'npm ci',
  'npx steptrain run',
  'npm test',
];
console.log(`| ${columns.join(' | ')} |\n|${' --- |'.repeat(columns.length)}`);
for (const row of rows) console.log(`| ${columns.map((column) => row[column] ?? '–').join(' | ')} |`);
console.error(`logs: ${join(options.in, '*.log')}`);
if (
  rows.some((row) => columns.some((column) => row[column] === undefined || /^(FAILED|NO)/.test(row[column])))
)
  process.exitCode = 1;
