/**
 * Our side of the check of a GPU (scripts/device/run.sh): a line of JSON a case, written as it comes, so that what is
 * killed leaves what it had.
 *   node build/ts/bench/device.js GROUP --budget SECONDS --out FILE          the cases of a group
 *   node build/ts/bench/device.js --choice NAME --budget SECONDS --out FILE  a successor beside the verified kernel, in turn
 *   node build/ts/bench/device.js --list                                     all cases, as JSON
 * No case begins after the budget; --seconds is what one takes at least; --tiny takes small cases.
 */
import { appendFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { type Device, openDevice } from '#src/runtime/device.js';
import type { RivalCase } from './cases.js';
import { type DeviceCases, deviceCases, tinyCases } from './device-groups.js';
import { measure } from './ours/measure.js';
import { type Spread, spread } from './statistics.js';

const DEVICE = process.env.STEPTRAIN_BENCH_DEVICE ?? 'cuda:0';
/** A kernel and its successor take turns. */
const ROUNDS = 4;
/** One side wins where its median is lower by this share than the other's fastest sample. */
const EVEN = 0.01;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    budget: { type: 'string', default: '60' },
    choice: { type: 'string' },
    list: { type: 'boolean', default: false },
    out: { type: 'string' },
    seconds: { type: 'string', default: '0.2' },
    tiny: { type: 'boolean', default: false },
  },
});
const cases = values.tiny ? tinyCases() : deviceCases();
const [seconds, budget] = [Number(values.seconds), Number(values.budget) * 1000];

if (values.list) console.log(JSON.stringify(withOps(cases)));
else if (values.choice) await compare(values.choice);
else for (const group of positionals) await bench(group);

async function bench(group: string): Promise<void> {
  const device = openDevice(DEVICE);
  for (const item of found(cases.groups, group)) {
    const began = performance.now();
    const line = { kind: 'bench', side: 'ours', group, op: opOf(item), name: item.name };
    if (began > budget) {
      note({ ...line, error: 'not begun: no time left' });
      continue;
    }
    try {
      device.resetPeak();
      const { median, min } = spread(await measure(device, item, seconds));
      note({ ...line, ...figures(item, median, min), peakGB: rounded(device.stats().peakBytes / 1e9) });
    } catch (error) {
      note({ ...line, error: (error as Error).message });
    }
  }
  device.dispose();
}

async function compare(name: string): Promise<void> {
  const { cases: items } = found(cases.successors, name);
  const [verified, successor] = [opened('verified'), opened(name)];
  for (const item of items) {
    const line = { kind: 'choice', kernels: name, op: opOf(item), name: item.name };
    if (performance.now() > budget) {
      note({ ...line, error: 'not begun: no time left' });
      continue;
    }
    const samples: [number[], number[]] = [[], []];
    try {
      for (let round = 0; round < ROUNDS; round++) {
        samples[0].push(...(await measure(verified, item, seconds / ROUNDS)));
        samples[1].push(...(await measure(successor, item, seconds / ROUNDS)));
      }
      const [before, after] = [spread(samples[0]), spread(samples[1])];
      note({
        ...line,
        verified: milliseconds(before),
        successor: milliseconds(after),
        ratio: rounded(before.median / after.median),
        winner: winner(before, after),
      });
    } catch (error) {
      note({ ...line, error: (error as Error).message });
    }
  }
  verified.dispose();
  successor.dispose();
}

/** The kernels of a device are chosen when it is opened. */
function opened(kernels: string): Device {
  process.env.STEPTRAIN_KERNELS = kernels;
  return openDevice(DEVICE);
}

function winner(verified: Spread, successor: Spread): 'verified' | 'successor' | 'even' {
  if (successor.median < verified.min * (1 - EVEN)) return 'successor';
  return verified.median < successor.min * (1 - EVEN) ? 'verified' : 'even';
}

function figures({ flops, bytes }: RivalCase, median: number, min: number) {
  return {
    ms: rounded(median * 1000),
    min: rounded(min * 1000),
    tflops: flops > 0 ? rounded(flops / median / 1e12) : undefined,
    gbs: rounded(bytes / median / 1e9),
  };
}

function milliseconds({ median, min, max }: Spread): readonly [median: number, min: number, max: number] {
  return [rounded(median * 1000), rounded(min * 1000), rounded(max * 1000)];
}

function rounded(value: number): number {
  return Number(value.toPrecision(5));
}

function opOf(item: RivalCase): string {
  if ('op' in item) return item.op;
  return 'direction' in item ? item.direction : item.suite;
}

/** The rival's side names its lines alike. */
function withOps({ groups, successors }: DeviceCases): object {
  const named = Object.entries(groups).map(([name, items]) => [
    name,
    items.map((item) => ({ ...item, shown: opOf(item) })),
  ]);
  return { groups: Object.fromEntries(named), successors };
}

function found<T>(table: Readonly<Record<string, T>>, name: string): T {
  const value = table[name];
  if (value === undefined)
    throw new Error(`there is no ${name}; expected one of ${Object.keys(table).join(', ')}`);
  return value;
}

function note(line: object): void {
  const text = JSON.stringify(line);
  console.log(text);
  if (values.out) appendFileSync(values.out, `${text}\n`);
}
