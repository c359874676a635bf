/** Messages on a socket: a kind, a number, and bytes whose length goes before them. */
import type { Socket } from 'node:net';

export const KINDS = ['beat', 'hello', 'welcome', 'data', 'stop', 'bye'] as const;
export type Kind = (typeof KINDS)[number];

export interface Frame {
  readonly kind: Kind;
  /** Number of the exchange that `data` belongs to; 0 for other frames. */
  readonly number: number;
  readonly bytes: Buffer;
}

const HEAD = 9;
/** Longer exchanges are cut into pieces of this many bytes. */
export const MAX_BYTES = 1 << 30;
/** Size from which a frame gets memory of its own, which is filled as its bytes come and may go to another thread. */
const OWN_MEMORY = 1 << 16;
/** Max bytes accepted from a process before it has identified itself. */
export const MAX_HELLO = 1 << 16;

export function sendFrame(
  socket: Socket,
  kind: Kind,
  bytes: Uint8Array = new Uint8Array(),
  number = 0,
): void {
  if (!socket.writable) return;
  const head = Buffer.alloc(HEAD);
  head.writeUInt8(KINDS.indexOf(kind), 0);
  head.writeUInt32LE(number >>> 0, 1);
  head.writeUInt32LE(bytes.length, 5);
  socket.cork();
  socket.write(head);
  if (bytes.length > 0) socket.write(bytes);
  socket.uncork();
}

/** Cuts what arrives into frames; gives a sentence instead for bytes that are none. */
export class FrameReader {
  private parts: Buffer[] = [];
  private length = 0;
  private filling: { readonly frame: Frame; readonly filled: number } | undefined;

  /** @param limit of the bytes of a frame; a function, since it grows once the sender is known */
  constructor(private readonly limit: () => number) {}

  *read(data: Buffer): Generator<Frame | string> {
    let rest = data;
    for (;;) {
      if (this.filling) {
        const { frame, filled } = this.filling;
        const taken = rest.copy(frame.bytes, filled);
        rest = rest.subarray(taken);
        if (filled + taken < frame.bytes.length) {
          this.filling = { frame, filled: filled + taken };
          return;
        }
        this.filling = undefined;
        yield frame;
      }
      if (rest.length > 0) {
        this.parts.push(rest);
        this.length += rest.length;
      }
      rest = Buffer.alloc(0);
      if (this.length < HEAD) return;
      const head = this.peek(HEAD);
      const kind = KINDS[head.readUInt8(0)];
      const [number, size] = [head.readUInt32LE(1), head.readUInt32LE(5)];
      if (kind === undefined || size > this.limit()) {
        yield 'sent bytes that no process of steptrain sends';
        return;
      }
      if (size >= OWN_MEMORY) {
        this.drop(HEAD);
        rest = Buffer.concat(this.parts.splice(0));
        this.length = 0;
        this.filling = { frame: { kind, number, bytes: Buffer.allocUnsafeSlow(size) }, filled: 0 };
        continue;
      }
      if (this.length < HEAD + size) return;
      const whole = this.peek(HEAD + size);
      this.drop(HEAD + size);
      yield { kind, number, bytes: whole.subarray(HEAD) };
    }
  }

  /** The first bytes, joined once: large frames come in thousands of parts. */
  private peek(bytes: number): Buffer {
    if ((this.parts[0] as Buffer).length < bytes) {
      let [count, length] = [0, 0];
      while (length < bytes) length += (this.parts[count++] as Buffer).length;
      this.parts.splice(0, count, Buffer.concat(this.parts.slice(0, count)));
    }
    return (this.parts[0] as Buffer).subarray(0, bytes);
  }

  private drop(bytes: number): void {
    const [first] = this.parts as [Buffer];
    if (first.length === bytes) this.parts.shift();
    else this.parts[0] = first.subarray(bytes);
    this.length -= bytes;
  }
}
