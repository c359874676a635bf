// Trains, kills, resumes, generates and serves in turn until the time is over, and asks whether memory stayed flat:
//   node scripts/soak.mjs [--minutes 120] [--log FILE] [--rest 1] [--seed N]
// Each turn, on models of the package: a run of the next method, killed with SIGKILL at random moments and resumed, has the bits of one
// that nobody stopped; `steptrain generate` writes; a new server answers, is left by some of its clients, and ends. Two processes live as
// long as the soak: a server, and one that trains, loads, generates and disposes through the API (scripts/soak-process.mjs). What
// they hold goes to the log, a JSON line a turn. After each turn it rests `--rest` times as long as the turn took.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { contents, differences, killedRun, MAIN, steptrain, uniform } from './killed-runs.mjs';
import { writeSmallRuns } from './small-runs.mjs';

/** Requests to each server in a turn. */
const REQUESTS = 40;
/** Growth from the second to the last quarter that is still flat: this share of the level, or so many bytes. */
const [SHARE, SLACK] = [0.05, 4 * 2 ** 20];
/** Descriptors more than then: connections that clients keep come and go. */
const CONNECTIONS = 8;
/** A judgement on memory needs so many turns; before, caches and compiled code still grow. */
const FEWEST_TURNS = 24;

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '120' },
    log: { type: 'string', default: 'soak.jsonl' },
    rest: { type: 'string', default: '1' },
    seed: { type: 'string', default: '1' },
  },
});
const folder = mkdtempSync(join(tmpdir(), 'steptrain-soak-'));
const recipes = writeSmallRuns(join(folder, 'recipes'));
const random = uniform(values.seed);
const until = performance.now() + Number(values.minutes) * 60_000;
const failures = [];
const turns = [];
writeFileSync(values.log, '');

const status = (pid) => {
  const resident = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  return { rss: Number(resident) * 1024, descriptors: readdirSync(`/proc/${pid}/fd`).length };
};

async function startServer() {
  const child = spawn(
    process.execPath,
    [MAIN, 'serve', '--port', '0', '--device', 'cpu', '--cache-gb', '0.02'],
    { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, STEPTRAIN_THREADS: '1' } },
  );
  const [line] = await once(child.stdout, 'data');
  return { child, url: /http:\S+\/v1/.exec(String(line))[0] };
}

/** Ragged requests, one in eight left by its client after the first bytes; none may be lost, and nothing may stay behind. */
async function ask({ url }) {
  const one = async (i) => {
    const controller = new AbortController();
    const response = await fetch(`${url}/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'embedded',
        prompt: `${i};+${i % 7};-3\n`.repeat(1 + (i % 5)),
        max_tokens: 1 + (i % 24),
        stream: i % 2 === 0,
        seed: i,
        ignore_eos: true,
      }),
      signal: controller.signal,
    });
    if (response.status !== 200) throw new Error(`request ${i}: status ${response.status}`);
    const reader = response.body.getReader();
    await reader.read();
    if (i % 8 === 0) {
      controller.abort();
      return;
    }
    while (!(await reader.read()).done);
  };
  for (let begun = 0; begun < REQUESTS; begun += 8)
    await Promise.all(Array.from({ length: 8 }, (_, i) => one(begun + i)));
  const metrics = async () => await (await fetch(url.replace(/\/v1$/, '/metrics'))).text();
  for (let attempt = 0; ; attempt++) {
    const text = await metrics();
    const left = /^steptrain_rows\{state="running"\} (\d+)/m.exec(text)?.[1];
    const used = /^steptrain_cache_pages\{state="used"\} (\d+)/m.exec(text)?.[1];
    if (left === '0' && used === '0') return;
    if (attempt === 50) throw new Error(`the server still holds ${left} samples and ${used} pages`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function stopServer({ child }) {
  const exit = once(child, 'exit');
  child.kill('SIGTERM');
  const [code] = await exit;
  if (code !== 0) throw new Error(`the server ended with ${code}`);
}

const undisturbed = new Map();
/** One method, killed and resumed; its kills by phase. */
async function killAndResume(name, turn) {
  const recipe = recipes.get(name);
  if (!undisturbed.has(name)) {
    const whole = join(folder, `whole-${name}`);
    const { code, said, spent } = await steptrain(['run', recipe, '--output', whole]);
    if (code !== 0) throw new Error(`${name} ended with ${code}: ${said}`);
    undisturbed.set(name, { files: contents(whole), time: spent });
    rmSync(whole, { recursive: true, force: true });
  }
  const { files, time } = undisturbed.get(name);
  const directory = join(folder, `killed-${turn}`);
  const moments = [random.next().value * time, random.next().value * time][Symbol.iterator]();
  const phases = await killedRun(recipe, directory, moments);
  const others = differences(files, contents(directory));
  if (others.length > 0)
    throw new Error(`${name}, killed in ${phases.join(', ')}, has other ${others.join(', ')}`);
  rmSync(directory, { recursive: true, force: true });
  return phases;
}

async function generateOnce() {
  const prompts = ['12;+7;-3\n', 'a', '7;+9\n'.repeat(20)];
  const { code, said } = await steptrain([
    'generate',
    ...prompts,
    '-n',
    '2',
    '--max-new-tokens',
    '24',
    '--device',
    'cpu',
  ]);
  if (code !== 0) throw new Error(`generate ended with ${code}: ${said}`);
}

async function serveOnce() {
  const server = await startServer();
  await ask(server);
  await stopServer(server);
}

const program = spawn(
  process.execPath,
  [fileURLToPath(new URL('soak-process.mjs', import.meta.url)), folder, JSON.stringify([...recipes])],
  { stdio: ['pipe', 'pipe', 'pipe'] },
);
let said = '';
program.stderr.on('data', (chunk) => {
  said = (said + chunk).slice(-5000);
});
const answers = createInterface({ input: program.stdout })[Symbol.asyncIterator]();
program.stdin.on('error', () => {});
async function throughApi(name) {
  program.stdin.write(`${name}\n`);
  const { value, done } = await answers.next();
  if (done)
    throw new Error(`the long-lived process ended with ${program.exitCode ?? program.signalCode}: ${said}`);
  return JSON.parse(value);
}

const server = await startServer();
const began = performance.now();
const names = [...recipes.keys()];
const attempt = async (what, work) => {
  try {
    return await work();
  } catch (error) {
    failures.push(`turn ${turn}, ${what}: ${error.message}`);
    console.error(failures.at(-1));
  }
};
const lives = ({ exitCode, signalCode }) => exitCode === null && signalCode === null;
let turn = 0;
for (; performance.now() < until && lives(program) && lives(server.child); turn++) {
  const start = performance.now();
  const name = names[turn % names.length];
  const kills = await attempt(`kills of ${name}`, () => killAndResume(name, turn));
  await attempt('generate', generateOnce);
  await attempt('serve', serveOnce);
  await attempt('the long-lived server', () => ask(server));
  const held = await attempt(`${name} through the API`, () => throughApi(name));
  const seconds = (performance.now() - start) / 1000;
  const at = (performance.now() - began) / 1000;
  if (held === undefined || !lives(server.child)) continue;
  const line = {
    ...{ turn, name, seconds_since_start: at, seconds, kills: kills?.length },
    api: { ...held, rss: status(program.pid).rss },
    server: status(server.child.pid),
  };
  turns.push(line);
  appendFileSync(values.log, `${JSON.stringify(line)}\n`);
  console.log(
    `turn ${turn}, ${name}: ${seconds.toFixed(0)} s, killed in ${kills?.join(', ') || 'no phase'}; API ${mib(line.api.rss)}, server ${mib(line.server.rss)}`,
  );
  const rest = Math.min(seconds * Number(values.rest) * 1000, until - performance.now());
  await new Promise((resolve) => setTimeout(resolve, Math.max(0, rest)));
}
if (lives(program)) {
  const ended = once(program, 'exit');
  program.stdin.end();
  const [code] = await ended;
  if (code !== 0) failures.push(`the long-lived process ended with ${code}`);
} else failures.push('the long-lived process ended before its time');
await attempt('stop of the long-lived server', () => stopServer(server));
if (failures.length === 0) rmSync(folder, { recursive: true, force: true });

function mib(bytes) {
  return `${(bytes / 2 ** 20).toFixed(1)} MiB`;
}

function median(numbers) {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

/** Least squares over the turns after the first quarter, per hour. */
function slopePerHour(points) {
  const meanX = points.reduce((sum, [x]) => sum + x, 0) / points.length;
  const meanY = points.reduce((sum, [, y]) => sum + y, 0) / points.length;
  const xy = points.reduce((sum, [x, y]) => sum + (x - meanX) * (y - meanY), 0);
  return (3600 * xy) / points.reduce((sum, [x]) => sum + (x - meanX) ** 2, 0);
}

const COLUMNS = [
  ['API: resident', ({ api }) => api.rss, 'bytes'],
  ['API: heap', ({ api }) => api.heap, 'bytes'],
  ['API: external', ({ api }) => api.external, 'bytes'],
  ['API: device, live', ({ api }) => api.live, 'bytes'],
  ['API: device, reserved', ({ api }) => api.reserved, 'bytes'],
  ['API: tensors', ({ api }) => api.tensors, 0],
  ['API: descriptors', ({ api }) => api.descriptors, CONNECTIONS],
  ['server: resident', (line) => line.server.rss, 'bytes'],
  ['server: descriptors', (line) => line.server.descriptors, CONNECTIONS],
];
const quarter = Math.floor(turns.length / 4);
const judged = turns.length >= FEWEST_TURNS;
console.log(
  `\n${'after the first quarter'.padEnd(24)}${['first', 'last', 'per hour', '2nd quarter', '4th quarter'].map((each) => each.padStart(14)).join('')}`,
);
for (const [name, read, unit] of COLUMNS) {
  const points = turns.slice(quarter).map((line) => [line.seconds_since_start, read(line)]);
  if (points.length === 0) break;
  const show = (value) => (unit === 'bytes' ? mib(value) : value.toFixed(1)).padStart(14);
  const [second, fourth] = [turns.slice(quarter, 2 * quarter), turns.slice(-quarter)].map((part) =>
    median(part.map(read)),
  );
  const columns = [points[0][1], points.at(-1)[1], slopePerHour(points), second, fourth];
  console.log(name.padEnd(24) + columns.map(show).join(''));
  const allowed = unit === 'bytes' ? Math.max(SLACK, SHARE * second) : unit;
  if (judged && fourth - second > allowed)
    failures.push(
      `${name} is not flat: the median of the last quarter of the turns is ${show(fourth).trim()}, of the second ${show(second).trim()}; expected at most ${show(second + allowed).trim()}`,
    );
}
const count = (read) => turns.reduce((sum, line) => sum + read(line), 0);
console.log(
  `${turns.length} turns in ${((performance.now() - began) / 60_000).toFixed(1)} minutes: ${count(({ kills }) => kills ?? 0)} kills, each resumed to the same bits, ` +
    `${count(({ api }) => api.tokens)} tokens through the API, ${2 * REQUESTS * turns.length} requests, ${failures.length} failures; log: ${values.log}${failures.length > 0 ? `; what was left: ${folder}` : ''}`,
);
if (!judged) console.log(`memory is judged from ${FEWEST_TURNS} turns on`);
for (const failure of failures) console.error(failure);
process.exitCode = failures.length > 0 ? 1 : 0;
