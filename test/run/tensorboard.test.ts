import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import { createRunDirectory, openRunDirectory } from '../../src/run/directory.js';
import { openLogFile } from '../../src/run/log-file.js';
import { withTensorBoard } from '../../src/run/tensorboard.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

let folder: string;
let clock: number;
beforeEach(() => {
  folder = temporaryDirectory();
  clock = 1_700_000_000_000;
});

const events = () => join(folder, 'tensorboard');
const open = () =>
  withTensorBoard(openLogFile(join(folder, 'metrics.jsonl')), events(), {
    now: () => {
      clock += 500;
      return clock;
    },
  });

/** The file with the events; after a rewrite the previous file is also there, empty. */
function eventFile(): string {
  const names = readdirSync(events()).sort();
  for (const name of names) expect(name).toMatch(/^events\.out\.tfevents\.\d{10}\.\d{4}$/);
  const paths = names.map((name) => join(events(), name));
  expect(paths.slice(0, -1).map((path) => statSync(path).size)).toEqual(paths.length > 1 ? [0] : []);
  return paths.at(-1)!;
}

interface Scalar {
  readonly step: number;
  readonly tag: string;
  readonly value: number;
  readonly wallTime: number;
}

/** Scalars of a file, by a decoder that shares nothing with the encoder: CRC bit by bit, protobuf by its general rules. */
function decode(file: string): Scalar[] {
  const messages = frames(readFileSync(file)).map(fields);
  const [version, start, ...rest] = messages;
  expect(text(only(version!, 3))).toBe('brain.Event:2');
  expect(fields(only(start!, 7) as Buffer).get(1)).toEqual([1n]);
  return rest.flatMap((event) => {
    const wallTime = (only(event, 1) as Buffer).readDoubleLE();
    return (fields(only(event, 5) as Buffer).get(1) ?? []).map((value): Scalar => {
      const of = fields(value as Buffer);
      return {
        step: Number(only(event, 2)),
        tag: text(only(of, 1)),
        value: (only(of, 2) as Buffer).readFloatLE(),
        wallTime,
      };
    });
  });
}

function frames(bytes: Buffer): Buffer[] {
  const messages: Buffer[] = [];
  for (let at = 0; at < bytes.length; ) {
    const length = Number(bytes.readBigUInt64LE(at));
    expect(bytes.readUInt32LE(at + 8)).toBe(maskedCrc(bytes.subarray(at, at + 8)));
    const message = bytes.subarray(at + 12, at + 12 + length);
    expect(bytes.readUInt32LE(at + 12 + length)).toBe(maskedCrc(message));
    messages.push(message);
    at += 16 + length;
  }
  return messages;
}

function crc32c(bytes: Buffer): bigint {
  let crc = 0xffffffffn;
  for (const byte of bytes) {
    for (let bit = 0; bit < 8; bit++) {
      const mixed = ((BigInt(byte) >> BigInt(bit)) ^ crc) & 1n;
      crc = (crc >> 1n) ^ (mixed * 0x82f63b78n);
    }
  }
  return crc ^ 0xffffffffn;
}

function maskedCrc(bytes: Buffer): number {
  const crc = crc32c(bytes);
  const rotated = ((crc >> 15n) | (crc << 17n)) & 0xffffffffn;
  return Number((rotated + 0xa282ead8n) & 0xffffffffn);
}

type Fields = Map<number, (bigint | Buffer)[]>;

function fields(message: Buffer): Fields {
  const found: Fields = new Map();
  let at = 0;
  const varint = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = BigInt(message[at++]!);
      value |= (byte & 0x7fn) << shift;
      if (byte < 0x80n) return value;
    }
  };
  const bytes = (length: number) => {
    expect(at + length).toBeLessThanOrEqual(message.length);
    at += length;
    return message.subarray(at - length, at);
  };
  while (at < message.length) {
    const key = Number(varint());
    const value = [
      varint,
      () => bytes(8),
      () => bytes(Number(varint())),
      undefined,
      undefined,
      () => bytes(4),
    ][key & 7]!();
    found.set(key >> 3, [...(found.get(key >> 3) ?? []), value]);
  }
  return found;
}

function only(message: Fields, number: number): bigint | Buffer {
  const values = message.get(number);
  expect(values).toHaveLength(1);
  return values![0]!;
}

const text = (value: bigint | Buffer) => (value as Buffer).toString('utf8');
const withoutTime = (scalars: readonly Scalar[]) => scalars.map(({ wallTime: _, ...scalar }) => scalar);

describe('the checksum of the test itself', () => {
  it('is CRC-32C by its published check value', () => {
    expect(crc32c(Buffer.from('123456789'))).toBe(0xe3069283n);
  });
});

describe('metrics as TensorBoard events', () => {
  it('are one scalar per metric, under the phase if there is one', () => {
    const log = open();
    log.append({ step: 10, loss: 0.5, epoch: 0.25, note: 'text', done: true });
    log.append({
      ...{ step: 300, phase: 'ppo', tokens: 7 },
      ...{ value_loss: 0.125, reward: { mean: -2, spread: { max: 8 } } },
    });
    log.append({ seconds: 3 });
    log.close();
    expect(withoutTime(decode(eventFile()))).toEqual([
      { step: 10, tag: 'loss', value: 0.5 },
      { step: 10, tag: 'epoch', value: 0.25 },
      { step: 300, tag: 'ppo/tokens', value: 7 },
      { step: 300, tag: 'ppo/value_loss', value: 0.125 },
      { step: 300, tag: 'ppo/reward/mean', value: -2 },
      { step: 300, tag: 'ppo/reward/spread/max', value: 8 },
    ]);
  });

  it('tell evaluations from training, whose metrics may have the same names', () => {
    const log = open();
    log.append({ step: 5, phase: 'solution_sft', phase_step: 5, targets: 139, tokens: 400 });
    log.append({ step: 5, phase: 'solution_sft', phase_step: 5, targets: 565, validation_loss: 2 });
    log.append({ step: 5, phase: 'solution_sft', phase_step: 5, best_step: 5, best_loss: 2 });
    log.append({ step: 5, phase: 'eval-1', phase_step: 1, rows: 9 });
    log.append({ step: 5, phase: 'test', targets: 3 });
    log.close();
    expect(decode(eventFile()).map(({ tag, value }) => [tag, value])).toEqual([
      ['solution_sft/phase_step', 5],
      ['solution_sft/targets', 139],
      ['solution_sft/tokens', 400],
      ['solution_sft/phase_step', 5],
      ['solution_sft/validation/targets', 565],
      ['solution_sft/validation_loss', 2],
      ['solution_sft/phase_step', 5],
      ['solution_sft/best_step', 5],
      ['solution_sft/best_loss', 2],
      ['eval-1/phase_step', 1],
      ['eval-1/rows', 9],
      ['test/targets', 3],
    ]);
  });

  it('carry the time of writing and are in the file at once', () => {
    const log = open();
    log.append({ step: 1, loss: 1 });
    const [first] = decode(eventFile());
    log.append({ step: 2, loss: 2 });
    const scalars = decode(eventFile());
    expect(scalars[0]).toEqual(first);
    expect(scalars[1]!.wallTime).toBeGreaterThan(first!.wallTime);
    expect(scalars[1]!.wallTime).toBe(clock / 1000);
    log.close();
  });

  it('hold every step, tag and number of the metrics', () => {
    const metric = fc.tuple(
      fc
        .string({ unit: 'grapheme' })
        .filter((tag) => tag !== 'step' && tag !== 'phase' && tag !== '__proto__'),
      fc.float({ noNaN: true, noDefaultInfinity: true }),
    );
    fc.assert(
      fc.property(fc.maxSafeNat(), fc.array(metric, { maxLength: 40 }), (step, pairs) => {
        folder = temporaryDirectory();
        const metrics = Object.fromEntries(pairs);
        const log = open();
        log.append({ step, ...metrics });
        log.close();
        const expected = Object.entries(metrics).map(([tag, value]) => ({ step, tag, value: value + 0 }));
        expect(withoutTime(decode(eventFile())).map((s) => ({ ...s, value: s.value + 0 }))).toEqual(expected);
      }),
      { numRuns: 50 },
    );
  });

  it('write no file if nothing was logged', () => {
    open().close();
    expect(existsSync(events())).toBe(false);
  });
});

describe('after a stop', () => {
  const lines = Array.from({ length: 12 }, (_, i) => ({
    step: i,
    phase: i < 6 ? 'sft' : 'ppo',
    loss: 2 ** -i,
  }));

  it.each([
    ['nothing happened to the file', () => {}],
    ['the last event is torn', () => truncateSync(eventFile(), readFileSync(eventFile()).length - 5)],
    [
      'the last event is missing',
      () => appendFileSync(join(folder, 'metrics.jsonl'), '{"step":8,"loss":7}\n'),
    ],
    ['a byte is wrong', () => flipByte(eventFile(), 200)],
    ['the file is no event file', () => writeFileSync(eventFile(), 'text')],
  ])('the events of a resumed run are those of an uninterrupted one: %s', (_, harm) => {
    const whole = open();
    for (const line of lines) whole.append(line);
    whole.close();
    const expected = withoutTime(decode(eventFile()));

    folder = temporaryDirectory();
    const first = open();
    for (const line of lines.slice(0, 5)) first.append(line);
    const { length } = first;
    for (const line of lines.slice(5, 8)) first.append({ ...line, loss: 99 });
    first.close();
    const before = decode(eventFile());
    harm();

    const resumed = open();
    resumed.cutTo(length);
    for (const line of lines.slice(5)) resumed.append(line);
    resumed.close();
    const after = decode(eventFile());
    expect(withoutTime(after)).toEqual(expected);
    // Lines from before the stop keep the times that the old file still has.
    if (harm.toString().includes('truncate')) expect(after.slice(0, 5)).toEqual(before.slice(0, 5));
  });

  it('a truncation to 0 starts an empty file', () => {
    const log = open();
    log.append({ step: 1, loss: 1 });
    log.cutTo(0);
    log.append({ step: 2, loss: 2 });
    expect(withoutTime(decode(eventFile()))).toEqual([{ step: 2, tag: 'loss', value: 2 }]);
    log.close();
  });

  it('each new file sorts after the old one, even within a second', () => {
    const at = () => 1_700_000_000_000;
    const metrics = () => openLogFile(join(folder, 'metrics.jsonl'));
    const log = withTensorBoard(metrics(), events(), { now: at });
    log.append({ step: 1, loss: 1 });
    log.close();
    const first = eventFile();
    withTensorBoard(metrics(), events(), { now: () => at() - 5000 }).close();
    expect(eventFile() > first).toBe(true);
  });

  it('refuses damaged metrics and names the line', () => {
    writeFileSync(join(folder, 'metrics.jsonl'), '{"step": 1}\n{"step":\n');
    expect(() => open().append({ step: 3 })).toThrow(/^[^:]*metrics\.jsonl, line 2 is not JSON/);
  });
});

describe('a run directory', () => {
  it('writes events beside its metrics and truncates both together', async () => {
    const run = await createRunDirectory(join(folder, 'run'), { onExisting: 'refuse' });
    await run.writeConfig('x');
    run.metrics.append({ step: 1, loss: 1 });
    const checkpoint = await run.saveCheckpoint(1, async () => {}, { keep: 1 });
    run.metrics.append({ step: 2, loss: 2 });
    await run.close();
    const resumed = await openRunDirectory(run.path);
    resumed.rewind(checkpoint);
    resumed.metrics.append({ step: 2, loss: 3 });
    await resumed.close();
    folder = run.path;
    expect(withoutTime(decode(eventFile()))).toEqual([
      { step: 1, tag: 'loss', value: 1 },
      { step: 2, tag: 'loss', value: 3 },
    ]);
  });
});

const python = process.env.STEPTRAIN_PYTHON;
describe.skipIf(!python)('TensorBoard itself (needs STEPTRAIN_PYTHON, a python with tensorboard)', () => {
  it('reads the same scalars', () => {
    const log = open();
    log.append({ step: 1, loss: 4 });
    const { length } = log;
    log.append({ step: 2, loss: 5 });
    log.cutTo(length);
    log.append({ step: 2, loss: 0.25, Acc_pos: 0.1 });
    log.append({ step: 1, phase: 'ppo', value_loss: 1e-3 });
    log.close();
    const script = [
      'import json, sys',
      'from tensorboard.backend.event_processing.event_accumulator import EventAccumulator',
      'events = EventAccumulator(sys.argv[1]); events.Reload()',
      'print(json.dumps({tag: [[e.step, e.value, e.wall_time] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))',
    ].join('\n');
    const read = JSON.parse(execFileSync(python!, ['-c', script, events()], { encoding: 'utf8' }));
    const expected: Record<string, unknown[]> = {};
    for (const { tag, step, value, wallTime } of decode(eventFile())) {
      expected[tag] = [...(expected[tag] ?? []), [step, value, wallTime]];
    }
    expect(Object.keys(expected)).toEqual(['loss', 'Acc_pos', 'ppo/value_loss']);
    expect(read).toEqual(expected);
  });
});

function flipByte(path: string, at: number): void {
  const bytes = readFileSync(path);
  bytes[at]! ^= 0x10;
  writeFileSync(path, bytes);
}
