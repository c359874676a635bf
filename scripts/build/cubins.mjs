// For which GPUs an addon holds code, read from the file itself: nvcc's own tool for that is rarely installed.
import { readFileSync } from 'node:fs';

const [MAGIC, PTX, CUBIN] = [0xba55ed50, 1, 2];

/** Compute capabilities of the machine code and of the PTX in `path`, ascending; both empty in an addon without CUDA. */
export function gpuCode(path) {
  const bytes = readFileSync(path);
  const magic = Buffer.alloc(4);
  magic.writeUInt32LE(MAGIC);
  const found = { [PTX]: new Set(), [CUBIN]: new Set() };
  for (let at = bytes.indexOf(magic); at >= 0; at = bytes.indexOf(magic, at + 4))
    for (const { kind, capability } of entries(bytes, at)) found[kind]?.add(capability);
  const sorted = (kind) => [...found[kind]].sort((a, b) => a - b);
  return { cubins: sorted(CUBIN), ptx: sorted(PTX) };
}

/** Of one fatbin: a header with its size and that of what follows, then entries, each a header and its padded content. */
function* entries(bytes, at) {
  if (at + 16 > bytes.length) return;
  const first = at + bytes.readUInt16LE(at + 6);
  const end = Math.min(first + Number(bytes.readBigUInt64LE(at + 8)), bytes.length);
  for (let entry = first; entry + 32 <= end; ) {
    yield { kind: bytes.readUInt16LE(entry), capability: bytes.readUInt32LE(entry + 28) };
    entry += bytes.readUInt32LE(entry + 4) + Number(bytes.readBigUInt64LE(entry + 8));
  }
}
