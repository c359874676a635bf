// Runs in the processes of a job, of which one is killed or stopped: the others must name it, end, and go on in another number.
import { spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { MAIN, phaseOf, processorTime } from './killed-runs.mjs';

/** How soon all others must have ended. */
const LIMIT_MS = 30_000;
const LOOK_MS = 5;
/** Of so many lost processes one is stopped, which takes until it is missed, and the others are killed. */
const STOPPED_OF = 8;

let port = 30_000 + (process.pid % 90) * 20;

/** What torchrun sets. */
function variables(rank, size) {
  const place = { RANK: rank, WORLD_SIZE: size, LOCAL_RANK: rank, LOCAL_WORLD_SIZE: size, MASTER_PORT: port };
  const texts = Object.fromEntries(Object.entries(place).map(([name, value]) => [name, String(value)]));
  return { ...process.env, ...texts, MASTER_ADDR: '127.0.0.1', TORCHELASTIC_RUN_ID: `kills-${port}` };
}

/**
 * One job, until it has ended. After `lost` has taken `until` seconds of processor time, it gets `signal`, once all are there.
 *
 * @returns by rank how each ended, and whether `lost` got its signal
 */
export async function job(args, size, { lost, signal, until = Number.POSITIVE_INFINITY }) {
  port += 17;
  let [sent, words] = [0, ''];
  const children = Array.from({ length: size }, (_, rank) =>
    spawn(process.execPath, [MAIN, ...args], {
      env: variables(rank, size),
      stdio: ['ignore', 'ignore', 'pipe'],
    }),
  );
  const ends = children.map(
    (child, rank) =>
      new Promise((resolve) => {
        let said = '';
        child.stderr.on('data', (chunk) => {
          said = (said + chunk).slice(-10_000);
          if (rank === 0) words += chunk;
        });
        child.on('close', (code, by) => resolve({ code, by, said, after: sent ? Date.now() - sent : 0 }));
      }),
  );
  const watch = setInterval(() => {
    const together = /^(Run directory:|Continuing)/m.test(words);
    if (!together || (processorTime(children[lost].pid) ?? 0) < until) return;
    clearInterval(watch);
    if (children[lost].kill(signal)) sent = Date.now();
  }, LOOK_MS);
  await Promise.all(ends.filter((_, rank) => rank !== lost || !sent));
  clearInterval(watch);
  children[lost].kill('SIGKILL');
  return { ends: await Promise.all(ends), sent: sent > 0 };
}

/**
 * As `killedRun`, in at most `ranks` processes: of each job that is disturbed one process is lost at a moment.
 *
 * @throws Error where nobody names it, another ends with 0, or too late
 */
export async function killedJob(recipe, directory, moments, { sets = [], onKill = () => {}, ranks, random }) {
  const below = (n) => Math.floor(random.next().value * n);
  const phases = [];
  for (;;) {
    const begun = existsSync(join(directory, 'config.yaml'));
    const args = begun ? ['run', '--resume', directory] : ['run', recipe, '--output', directory, ...sets];
    const until = moments.next().value;
    const size = until === undefined ? 1 + below(ranks) : 2 + below(ranks - 1);
    const lost = below(size);
    const signal = below(STOPPED_OF) === 0 ? 'SIGSTOP' : 'SIGKILL';
    const { ends, sent } = await job(args, size, { lost, signal, until });
    if (sent && !(ends.every(({ code }) => code === 0) && signal === 'SIGKILL')) {
      const wrong = disturbed(ends, lost, directory);
      if (wrong) throw new Error(`${args.join(' ')}: ${signal} to rank ${lost} of ${size}: ${wrong}`);
      phases.push(`${signal} to ${lost}/${size} at ${phaseOf(ends[0].said)}`);
      onKill();
    } else if (ends.every(({ code }) => code === 0)) return phases;
    else throw new Error(`${args.join(' ')} ended with ${ends.map(({ code, said }) => `${code}: ${said}`)}`);
  }
}

/** What is wrong with how the others ended. */
function disturbed(ends, lost, directory) {
  const others = ends.filter((_, rank) => rank !== lost);
  const well = others.find(({ code }) => code === 0);
  if (well) return `another ended with 0: ${well.said}`;
  const late = others.find(({ after }) => after > LIMIT_MS);
  if (late) return `another ended after ${late.after} ms: ${late.said}`;
  const logs = join(directory, 'ranks');
  const files = existsSync(logs)
    ? readdirSync(logs).map((name) => readFileSync(join(logs, name), 'utf8'))
    : [];
  const words = [...others.map(({ said }) => said), ...files].join('\n');
  return new RegExp(`rank ${lost} on `).test(words) ? undefined : `nobody named it: ${words}`;
}
