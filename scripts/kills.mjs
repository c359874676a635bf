// Kills a run with SIGKILL at random moments, resumes it each time, and compares what it ends with, bit for bit, with a run that nobody
// stopped. Runs that end before all kills were made are begun anew.
//   node scripts/kills.mjs RECIPE [-n KILLS] [--seed N] [--set KEY=VALUE …]
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const MAIN = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url));
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    kills: { type: 'string', short: 'n', default: '30' },
    seed: { type: 'string', default: '1' },
    set: { type: 'string', multiple: true, default: [] },
  },
});
const [recipe] = positionals;
if (recipe === undefined) throw new Error('name a recipe: node scripts/kills.mjs RECIPE [-n KILLS]');
const kills = Number(values.kills);
const folder = mkdtempSync(join(tmpdir(), 'steptrain-kills-'));

/** The program until it ends or, after `milliseconds`, is killed; what it said last tells the phase. */
function run(args, milliseconds) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'ignore', 'pipe'] });
    let said = '';
    child.stderr.on('data', (chunk) => {
      said = (said + chunk).slice(-10_000);
    });
    const timer = setTimeout(() => child.kill('SIGKILL'), milliseconds ?? 2 ** 31 - 1);
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      resolve({ code, killed: signal === 'SIGKILL', said });
    });
  });
}

/** What the last line of progress was about. */
function phaseOf(said) {
  const last = said
    .split(/[\r\n]/)
    .findLast((line) => / \d+\/\d+ |evaluation|tokenised|checkpoint/.test(line));
  return last?.trim().replace(/ \d.*/, '') ?? 'start';
}

/** Every file that a run ends with, but for times, memory, locks, checkpoints and the page about them: by name its hash. */
function contents(directory, at = '') {
  return Object.fromEntries(
    readdirSync(join(directory, at), { withFileTypes: true }).flatMap((entry) => {
      const name = join(at, entry.name);
      if (
        /^(checkpoints|tensorboard|config\.yaml|inputs\.json|memory\.json|report\.html)$/.test(name) ||
        /lock/.test(name)
      )
        return [];
      if (entry.isDirectory()) return Object.entries(contents(directory, name));
      const bytes = readFileSync(join(directory, name));
      const counted = name === 'metrics.jsonl' ? withoutTimes(bytes) : bytes;
      return [[name, createHash('sha256').update(counted).digest('hex')]];
    }),
  );
}

function withoutTimes(bytes) {
  const lines = bytes.toString().trim().split('\n');
  return lines
    .map((line) => {
      const entries = Object.entries(JSON.parse(line));
      return JSON.stringify(entries.filter(([key]) => !/_seconds$|_per_second$|_bytes$/.test(key)));
    })
    .join('\n');
}

/** Numbers in [0, 1) that the seed repeats. */
function* uniform(seed) {
  for (let i = 0; ; i++) yield createHash('sha256').update(`${seed} ${i}`).digest().readUInt32LE() / 2 ** 32;
}

const sets = values.set.flatMap((each) => ['--set', each]);
const whole = join(folder, 'whole');
const began = performance.now();
const first = await run(['run', recipe, '--output', whole, ...sets]);
if (first.code !== 0) throw new Error(first.said);
const time = performance.now() - began;
const expected = contents(whole);
console.log(`not stopped: ${(time / 1000).toFixed(1)} s, ${Object.keys(expected).length} files`);

const random = uniform(values.seed);
const phases = new Map();
let [made, ended, different] = [0, 0, 0];
while (made < kills) {
  const directory = join(folder, `run-${ended}`);
  for (;;) {
    const args = existsSync(join(directory, 'config.yaml'))
      ? ['run', '--resume', directory]
      : ['run', recipe, '--output', directory, ...sets];
    const { code, killed, said } = await run(
      args,
      made < kills ? 0.8 * random.next().value * time : undefined,
    );
    if (killed) {
      made++;
      const phase = phaseOf(said);
      phases.set(phase, (phases.get(phase) ?? 0) + 1);
      console.log(`kill ${made}: ${phase}`);
      continue;
    }
    if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}: ${said}`);
    break;
  }
  ended++;
  const found = contents(directory);
  const names = new Set([...Object.keys(expected), ...Object.keys(found)]);
  const others = [...names].filter((name) => expected[name] !== found[name]);
  different += others.length;
  console.log(
    others.length === 0 ? `run ${ended}: the same bits` : `run ${ended}: other ${others.join(', ')}`,
  );
  rmSync(directory, { recursive: true, force: true });
}
rmSync(folder, { recursive: true, force: true });
const where = [...phases].map(([phase, count]) => `${phase} ${count}`).join(', ');
console.log(`${made} kills (${where}), ${ended} runs to their end, ${different} files that differ`);
process.exitCode = different > 0 ? 1 : 0;
