/** The same training step in one process on a core, and in two on a core each. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { median } from '../statistics.js';
import type { Metrics } from './runtime.js';

const RANK = fileURLToPath(new URL('cluster-rank.js', import.meta.url));

interface Taken {
  readonly clock: number;
  readonly processor: number;
  readonly waited: number;
}

/**
 * Milliseconds of a step, and how many times as fast two processes are: on the clock, and by the processor time of the busier one,
 * which is what the clock would say if each had a core to itself.
 */
export async function clusterStep(steps: number): Promise<Metrics> {
  const [one, two] = [await secondsOf(1, steps), await secondsOf(2, steps)];
  const sockets = await secondsOf(2, steps, { carrier: 'tcp' });
  // What keeps two from being twice as fast: what each process does by itself, the other core's use of the memory, the exchange.
  const half = await secondsOf(1, steps, { sequences: 1 });
  const [beside, other] = (await Promise.all(
    [2, 3].map((number) => secondsOf(1, steps, { sequences: 1, number })),
  )) as [Taken, Taken];
  return {
    'ms, 1 process': 1000 * one.clock,
    'ms, 2 processes': 1000 * two.clock,
    'times as fast': one.clock / two.clock,
    'processor ms, 1 process': 1000 * one.processor,
    'processor ms, busier of 2': 1000 * two.processor,
    'times as fast, by processor time': one.processor / two.processor,
    'processor ms of half the batch': 1000 * half.processor,
    'the same while the other core does so too': 1000 * Math.max(beside.processor, other.processor),
    'ms waited, by the one of 2 that waits least': 1000 * two.waited,
    'TCP: ms, 2 processes': 1000 * sockets.clock,
    'TCP: times as fast': one.clock / sockets.clock,
    'TCP: processor ms, busier of 2': 1000 * sockets.processor,
    'TCP: ms waited, by the one of 2 that waits least': 1000 * sockets.waited,
  };
}

interface Job {
  readonly sequences?: number;
  /** Tells jobs at the same time apart. */
  readonly number?: number;
  readonly carrier?: 'auto' | 'tcp';
}

async function secondsOf(
  size: number,
  steps: number,
  { sequences = 2, number = size, carrier = 'auto' }: Job = {},
): Promise<Taken> {
  const port = String(33_000 + (process.pid % 1000) * 16 + number);
  const children = Array.from({ length: size }, (_, rank) => {
    const own = { RANK: rank, LOCAL_RANK: rank, WORLD_SIZE: size, LOCAL_WORLD_SIZE: size };
    const texts = Object.fromEntries(Object.entries(own).map(([name, value]) => [name, String(value)]));
    const env = { ...process.env, ...texts, MASTER_ADDR: '127.0.0.1', MASTER_PORT: port };
    return spawn(process.execPath, [RANK, String(steps), String(sequences), carrier], {
      env,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
  });
  const words = await Promise.all(
    children.map(
      (child, rank) =>
        new Promise<string>((resolve, reject) => {
          let said = '';
          child.stdout.on('data', (text) => {
            said += text;
          });
          child.on('close', (code) =>
            code === 0 ? resolve(said) : reject(new Error(`rank ${rank} of ${size} ended with ${code}`)),
          );
        }),
    ),
  );
  const ranks = words.map((text) => {
    const all = JSON.parse(text) as readonly Taken[];
    return {
      clock: median(all.map(({ clock }) => clock)),
      processor: median(all.map(({ processor }) => processor)),
      waited: median(all.map(({ waited }) => waited)),
    };
  });
  const most = (what: keyof Taken) => Math.max(...ranks.map((each) => each[what]));
  return {
    clock: most('clock'),
    processor: most('processor'),
    waited: Math.min(...ranks.map(({ waited }) => waited)),
  };
}
