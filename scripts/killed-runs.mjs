// Runs of the compiled program that are killed with SIGKILL and resumed, and what they end with, bit for bit.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const MAIN = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url));

/** How often the processor time of a run is looked at, and for how long it may go on before it is killed: in between it may wait for the disk. */
const [LOOK_MS, GRACE_MS] = [5, 40];
/** Ticks of /proc/PID/stat a second. */
const TICKS = 100;

/** Seconds of processor time that a process took, undefined when it has gone. */
export function processorTime(pid) {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ');
    return (Number(fields[11]) + Number(fields[12])) / TICKS;
  } catch {
    return undefined;
  }
}

/**
 * The program until it ends or is killed: a little after it has taken `until` seconds of processor time, which a busy machine does not
 * change.
 *
 * @returns `spent`: the seconds it took; `said`: its last words, which tell the phase
 */
export function steptrain(args, until = Number.POSITIVE_INFINITY) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'ignore', 'pipe'] });
    let said = '';
    let spent = 0;
    child.stderr.on('data', (chunk) => {
      said = (said + chunk).slice(-10_000);
    });
    const watch = setInterval(() => {
      spent = processorTime(child.pid) ?? spent;
      if (spent < until) return;
      clearInterval(watch);
      setTimeout(() => child.kill('SIGKILL'), Math.random() * GRACE_MS);
    }, LOOK_MS);
    child.on('close', (code, signal) => {
      clearInterval(watch);
      resolve({ code, killed: signal === 'SIGKILL', said, spent });
    });
  });
}

/**
 * Begins or resumes the run of `recipe` in `directory` until it has ended, and kills it after each of `moments` (seconds of
 * processor time; the iterator's end means: leave it alone).
 *
 * @returns the phases in which it was killed
 */
export async function killedRun(recipe, directory, moments, { sets = [], onKill = () => {} } = {}) {
  const phases = [];
  for (;;) {
    const begun = existsSync(join(directory, 'config.yaml'));
    const args = begun ? ['run', '--resume', directory] : ['run', recipe, '--output', directory, ...sets];
    const { code, killed, said } = await steptrain(args, moments.next().value);
    if (killed) {
      phases.push(phaseOf(said));
      onKill();
    } else if (code === 0) return phases;
    else throw new Error(`${args.join(' ')} ended with ${code}: ${said}`);
  }
}

/** What the last line of progress was about. */
export function phaseOf(said) {
  const last = said
    .split(/[\r\n]/)
    .findLast((line) => / \d+\/\d+ |evaluation|tokenised|checkpoint/.test(line));
  return last?.trim().replace(/ \d.*/, '') ?? 'start';
}

/** Every file that a run ends with, but for times, memory, locks, checkpoints and the page about them: by name its hash. */
export function contents(directory, at = '') {
  return Object.fromEntries(
    readdirSync(join(directory, at), { withFileTypes: true }).flatMap((entry) => {
      const name = join(at, entry.name);
      if (
        /^(checkpoints|tensorboard|ranks|config\.yaml|inputs\.json|memory\.json|report\.html|sessions\.jsonl)$/.test(
          name,
        ) ||
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

/** Names of files that one run has and the other has not, or with other bits. */
export function differences(expected, found) {
  const names = new Set([...Object.keys(expected), ...Object.keys(found)]);
  return [...names].filter((name) => expected[name] !== found[name]);
}

/** Numbers in [0, 1) that the seed repeats. */
export function* uniform(seed) {
  for (let i = 0; ; i++) yield createHash('sha256').update(`${seed} ${i}`).digest().readUInt32LE() / 2 ** 32;
}
