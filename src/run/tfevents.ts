// TensorBoard's event files: TFRecord frames of protobuf messages, encoded by hand since only five fields are needed.
// Layouts: tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto and framework/summary.proto.

/** One event: scalars of one step, or one of the two that begin a file. */
export interface TfEvent {
  /** Seconds since 1970. */
  readonly wallTime: number;
  readonly step?: number;
  readonly scalars?: readonly (readonly [tag: string, value: number])[];
  readonly fileVersion?: string;
  /** Makes readers drop earlier values from this step on. */
  readonly sessionStart?: boolean;
}

const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;

/** Field numbers of Event. */
const EVENT = { wallTime: 1, step: 2, fileVersion: 3, summary: 5, sessionLog: 7 } as const;
/** Summary.value, Summary.Value.tag, .simple_value; SessionLog.status and its START. */
const SUMMARY_VALUE = 1;
const VALUE = { tag: 1, simpleValue: 2 } as const;
const SESSION_STATUS = 1;
const SESSION_START = 1;

/** An event as a frame: length, its checksum, message, its checksum. */
export function eventFrame(event: TfEvent): Buffer {
  const message = encodeEvent(event);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(message.length));
  return Buffer.concat([length, checksum(length), message, checksum(message)]);
}

/** Wall times of the events with scalars among whole frames; reading ends where a frame is cut off or damaged. */
export function scalarWallTimes(file: Buffer): number[] {
  const times: number[] = [];
  for (let at = 0; at + 12 <= file.length; ) {
    const length = Number(file.readBigUInt64LE(at));
    const end = at + 12 + length;
    if (end + 4 > file.length) break;
    const message = file.subarray(at + 12, end);
    if (checksum(message).compare(file.subarray(end, end + 4)) !== 0) break;
    at = end + 4;
    // `eventFrame` writes the wall time first and the step after it, and a step only where there are scalars.
    if (message.length > 9 && message[9] === key(EVENT.step, VARINT)) times.push(message.readDoubleLE(1));
  }
  return times;
}

function encodeEvent({ wallTime, step, scalars, fileVersion, sessionStart }: TfEvent): Buffer {
  const parts: Buffer[] = [Buffer.from([key(EVENT.wallTime, FIXED64)]), Buffer.alloc(8)];
  parts[1]!.writeDoubleLE(wallTime);
  if (step !== undefined) parts.push(Buffer.from([key(EVENT.step, VARINT)]), varint(step));
  if (fileVersion !== undefined) parts.push(field(EVENT.fileVersion, Buffer.from(fileVersion)));
  if (scalars) parts.push(field(EVENT.summary, Buffer.concat(scalars.map(encodeScalar))));
  if (sessionStart)
    parts.push(field(EVENT.sessionLog, Buffer.from([key(SESSION_STATUS, VARINT), SESSION_START])));
  return Buffer.concat(parts);
}

function encodeScalar([tag, value]: readonly [string, number]): Buffer {
  const single = Buffer.alloc(5);
  single[0] = key(VALUE.simpleValue, FIXED32);
  single.writeFloatLE(value, 1);
  return field(SUMMARY_VALUE, Buffer.concat([field(VALUE.tag, Buffer.from(tag)), single]));
}

function key(number: number, wireType: number): number {
  return (number << 3) | wireType;
}

function field(number: number, content: Buffer): Buffer {
  return Buffer.concat([Buffer.from([key(number, BYTES)]), varint(content.length), content]);
}

/** A non-negative safe integer in groups of seven bits, the lowest first. */
function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) bytes.push((rest % 0x80) | 0x80);
  return Buffer.from([...bytes, rest]);
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  return crc;
});

/** Masked CRC-32C (rotated, plus a constant), as TFRecord requires for data that contains checksums. */
function checksum(bytes: Uint8Array): Buffer {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = CRC_TABLE[(crc ^ byte) & 0xff]! ^ (crc >>> 8);
  crc = ~crc;
  const masked = Buffer.alloc(4);
  masked.writeUInt32LE((((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0);
  return masked;
}
