// Prints, a line a case, a hash of what attention and its gradient are for fixed values, heads of 128 elements in bf16: to
// compare two addons (STEPTRAIN_ADDON) bit by bit.
//   node scripts/device/attention-bits.mjs [--tiny]
import { createHash } from 'node:crypto';
import { openDevice } from '../../dist/runtime/device.js';

const SIZE = 128;
const RAGGED = [300, 0, 141, 5];
const ALL = [
  { name: 'ragged', lengths: RAGGED, heads: 2, kvHeads: 1 },
  { name: 'whole', lengths: RAGGED, heads: 2, kvHeads: 2, causal: false },
  { name: 'window', lengths: [1000, 700], heads: 4, kvHeads: 1, window: 200 },
  { name: '28 heads on 4', lengths: [2048, 1024, 77], heads: 28, kvHeads: 4 },
  { name: 'long', lengths: [8192], heads: 16, kvHeads: 16 },
];

const device = openDevice(process.env.STEPTRAIN_BENCH_DEVICE ?? 'cuda:0');
for (const one of process.argv.includes('--tiny') ? ALL.slice(0, 1) : ALL) {
  const { name, lengths, heads, kvHeads, causal = true, window = 0 } = one;
  const ends = [0];
  for (const length of lengths) ends.push(ends.at(-1) + length);
  const tensor = (count, seed) => {
    const shape = [ends.at(-1), count, SIZE];
    return device.tensor(
      values(
        shape.reduce((a, b) => a * b),
        seed,
      ),
      shape,
      'bf16',
    );
  };
  const [q, k, v, slopes] = [tensor(heads, 1), tensor(kvHeads, 2), tensor(kvHeads, 3), tensor(heads, 4)];
  const given = {
    q,
    k,
    v,
    cu_seqlens: device.tensor(Int32Array.from(ends)),
    scale: SIZE ** -0.5,
    causal,
    window,
  };
  const forward = device.ops.attention(given);
  const backward = device.ops.attention_backward({ ...given, ...forward, do: slopes });
  const hash = createHash('sha256');
  for (const each of [...Object.values(forward), ...Object.values(backward)])
    hash.update(await each.readFloats());
  console.log(`${name} ${hash.digest('hex')}`);
  for (const each of [
    q,
    k,
    v,
    slopes,
    given.cu_seqlens,
    ...Object.values(forward),
    ...Object.values(backward),
  ])
    each.dispose();
}
device.dispose();

/** From −1 to 1, by a linear congruence. */
function values(count, seed) {
  let state = seed;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  });
}
