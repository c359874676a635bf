/**
 * Our side of the check of a GPU (scripts/device/run.sh): a line of JSON a case, written as it comes, so that what is
 * killed leaves what it had.
 *   node build/ts/bench/device.js GROUP --budget SECONDS --out FILE   the cases of a group
 *   node build/ts/bench/device.js --list                              all cases, as JSON
 * No case begins after the budget; --seconds is what one takes at least; --tiny takes small cases.
 */
import { appendFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { openDevice } from '#src/runtime/device.js';
import type { RivalCase } from './cases.js';
import { type DeviceCases, deviceCases, tinyCases } from './device-groups.js';
import { measure } from './ours/measure.js';
import { spread } from './statistics.js';

const DEVICE = process.env.STEPTRAIN_BENCH_DEVICE ?? 'cuda:0';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    budget: { type: 'string', default: '60' },
    list: { type: 'boolean', default: false },
    out: { type: 'string' },
    seconds: { type: 'string', default: '0.2' },
    tiny: { type: 'boolean', default: false },
  },
});
const cases = values.tiny ? tinyCases() : deviceCases();
const [seconds, budget] = [Number(values.seconds), Number(values.budget) * 1000];

if (values.list) console.log(JSON.stringify(withOps(cases)));
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

function figures({ flops, bytes }: RivalCase, median: number, min: number) {
  return {
    ms: rounded(median * 1000),
    min: rounded(min * 1000),
    tflops: flops > 0 ? rounded(flops / median / 1e12) : undefined,
    gbs: rounded(bytes / median / 1e9),
  };
}

function rounded(value: number): number {
  return Number(value.toPrecision(5));
}

function opOf(item: RivalCase): string {
  if ('op' in item) return item.op;
  return 'direction' in item ? item.direction : item.suite;
}

/** The rival's side names its lines alike. */
function withOps({ groups }: DeviceCases): object {
  const named = Object.entries(groups).map(([name, items]) => [
    name,
    items.map((item) => ({ ...item, shown: opOf(item) })),
  ]);
  return { groups: Object.fromEntries(named) };
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
