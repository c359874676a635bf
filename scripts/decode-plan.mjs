// What a step of decoding should cost on an H100 SXM, by arithmetic alone: the tables of docs/kernels/decode.md.
//   node scripts/decode-plan.mjs
// Nothing here was measured. Every number that a GPU could refute is in ASSUMED, with its name in the document.

/** A1 … A6 and A9 … A12 of the document. Seconds, bytes, bytes per second, multiply-adds per second. */
const ASSUMED = {
  streamed: 0.9, // A1: share of the memory's bandwidth that a kernel reaches while it streams
  gap: 1.3e-6, // A2: from the end of a kernel to the first instruction of the next, in a replayed graph
  overlappedGap: 0.5e-6, // A2, with programmatic dependent launch
  hostLaunch: 4e-6, // A3: host time of an op's launch outside a graph, call and queue included
  latency: 1.2e-6, // A4: of a kernel's first bytes and last writes, beside the streaming
  fetchedLatency: 0.6e-6, // A4, of the last writes alone, where the first bytes of W are fetched before the kernel in front has ended
  blockBandwidth: 64 * 1.755e9, // A5: what one multiprocessor draws from the L2 cache
  macs: 1024 * 1.755e9, // A6: multiply-adds a second of mma.sync on one multiprocessor
  norm: 0.5e-6, // A9: of a norm inside a product's launch, beside its bytes: barriers, and a row's squares
  turn: 0.6e-6, // A12: a warp of attention waits for 32 keys
  draw: 2e-6, // A11: what the last block of a row does with the masses of its tiles: sums, a tile, a token
  ticket: 0.8e-6, // A10: what the last block of a row adds: the ticket, and what the others left in the L2 cache
};
const H100 = { bandwidth: 3.35e12, multiprocessors: 132, l2: 5.5e12 };

const MODELS = {
  '0.5B': { hidden: 896, mlp: 4864, layers: 24, heads: 14, kvHeads: 2, size: 64, vocabulary: 151936 },
  '1.5B': { hidden: 1536, mlp: 8960, layers: 28, heads: 12, kvHeads: 2, size: 128, vocabulary: 151936 },
  '7B': { hidden: 3584, mlp: 18944, layers: 28, heads: 28, kvHeads: 4, size: 128, vocabulary: 152064 },
};
const CONTEXT = 1024;

const ceil = (a, b) => Math.ceil(a / b);

/** Seconds of x·Wᵀ without what every launch costs: the kernel that cuda/gemm/few_rows_launch.cuh chooses. */
function product(rows, outputs, depth, halves = 1) {
  const weights = 2 * outputs * halves * depth;
  const memory = weights / (H100.bandwidth * ASSUMED.streamed);
  if (rows <= 16) {
    const blocks = ceil(outputs, 16);
    return Math.max(memory, weights / (Math.min(blocks, H100.multiprocessors) * ASSUMED.blockBandwidth));
  }
  const tiles = (high, wide) => ceil(outputs * halves, high) * ceil(rows, wide);
  const large = rows > 64 && tiles(128, 128) >= H100.multiprocessors;
  const [high, wide, together] = large ? [128, 128, 1] : [64, rows <= 32 ? 32 : 64, 3];
  let parts = 1;
  while (parts < 8 && tiles(high, wide) * parts < H100.multiprocessors) parts *= 2;
  const blocks = tiles(high, wide) * parts;
  // Blocks of one multiprocessor share its tensor cores and its way to the L2 cache; the last ones wait for no other.
  const turns =
    blocks > together * H100.multiprocessors
      ? ceil(blocks, H100.multiprocessors)
      : Math.max(1, blocks / H100.multiprocessors);
  const macs = (high * wide * depth) / parts;
  const bytes = (2 * (high + wide) * depth) / parts;
  const sums = parts > 1 ? (2 * 4 * 8 * rows * outputs * halves) / H100.l2 : 0;
  return (
    Math.max(
      memory,
      turns * Math.max(macs / ASSUMED.macs, bytes / ASSUMED.blockBandwidth),
      (blocks * bytes) / H100.l2,
    ) + sums
  );
}

/** Whether the blocks of a product norm its rows themselves (can_norm in cuda/gemm/few_rows_norm.cuh). */
const normsInside = (rows, depth) => rows <= 16 && rows * 64 * (ceil(depth, 32) | 1) <= 56 * 1024;

/** A kernel: seconds of its work beside what every launch costs; whether it may start early, and then fetches first. */
const kernel = (work, { early = true, fetches = false } = {}) => ({ work, early, fetches });

/** Launches of a layer. */
function layer(model, rows) {
  const { hidden, mlp, heads, kvHeads, size } = model;
  const [q, kv] = [heads * size, kvHeads * size];
  const keys = (rows * CONTEXT * 2 * 2 * kv) / (H100.bandwidth * ASSUMED.streamed);
  // A warp reads 128 keys in four turns, of which each waits for memory once.
  const attention = Math.max(keys, 4 * ASSUMED.turn);
  const combine = CONTEXT > 512 ? ASSUMED.ticket : 0;
  const inside = normsInside(rows, hidden);
  // Every block reads all rows; the blocks of a multiprocessor share its way to the L2 cache.
  const norm = (outputs) =>
    inside
      ? ASSUMED.norm +
        Math.max(1, ceil(outputs, 16) / H100.multiprocessors) * ((2 * rows * hidden) / ASSUMED.blockBandwidth)
      : 0;
  const products = [
    product(rows, q + 2 * kv, hidden) + norm(q + 2 * kv),
    product(rows, hidden, q),
    product(rows, mlp, hidden, 2) + norm(mlp),
    product(rows, hidden, mlp),
  ];
  // Norms: rows of a few kilobytes, nothing but their launch, until there are many.
  const small = (elements) => (rows * elements * 2 * 3) / H100.l2;
  const norms = inside ? [] : [small(hidden), small(hidden)];
  return [
    ...products.map((work) => kernel(work, { fetches: rows <= 16 })),
    ...[attention + combine, ...norms].map((work) => kernel(work)),
  ];
}

/** A step: `host`, the least time of a launch; `overlaps`: kernels start early. */
function step(name, rows, { overlaps, host = 0 }) {
  const model = MODELS[name];
  const own = layer(model, rows);
  const logits = 4 * rows * model.vocabulary;
  const head = product(rows, model.vocabulary, model.hidden) + logits / H100.bandwidth;
  // A block reads 8,192 f32 logits once (cuda/sampling.cu); blocks of a multiprocessor share its way to the L2 cache.
  const turns = ceil(rows * ceil(model.vocabulary, 8192), H100.multiprocessors);
  const sampling =
    Math.max((turns * 4 * 8192) / ASSUMED.blockBandwidth, logits / H100.l2) + ASSUMED.ticket + ASSUMED.draw;
  const late = { early: false };
  const kernels = [
    kernel(0, late), // advance
    kernel(0, late), // embedding
    ...Array.from({ length: model.layers }, () => own).flat(),
    kernel(0), // norm
    ...(host > 0 ? [kernel(0, late)] : []), // gathered rows
    kernel(head, { fetches: rows <= 16 }),
    kernel(sampling),
  ];
  const seconds = kernels.map(({ work, early, fetches }) => {
    const starts = overlaps && early;
    const cost = starts ? ASSUMED.overlappedGap : ASSUMED.gap;
    return Math.max(host, work + cost + (starts && fetches ? ASSUMED.fetchedLatency : ASSUMED.latency));
  });
  return {
    launches: kernels.length,
    perLayer: own.length,
    seconds: seconds.reduce((sum, one) => sum + one, 0),
  };
}

function bytesOf(name, rows) {
  const { hidden, mlp, layers, heads, kvHeads, size, vocabulary } = MODELS[name];
  const weights =
    2 * (layers * (hidden * size * (2 * heads + 2 * kvHeads) + 3 * hidden * mlp) + vocabulary * hidden);
  return { weights, keys: rows * CONTEXT * layers * 2 * 2 * kvHeads * size, flops: weights * rows };
}

const variants = [
  ['As built, launched one by one', { overlaps: true, host: ASSUMED.hostLaunch }],
  ['As built, in a captured graph', { overlaps: true }],
  ['The same where no kernel starts early', { overlaps: false }],
];
const table = (head, rows) => {
  console.log(`| ${head.join(' | ')} |\n| ${head.map(() => '---').join(' | ')} |`);
  for (const row of rows) console.log(`| ${row.join(' | ')} |`);
  console.log();
};
const cases = Object.keys(MODELS).flatMap((name) => [1, 16, 256].map((rows) => [name, rows]));
table(
  ['model', 'batch', 'weights, GB', 'keys and values, GB', 'GFLOP', 'memory alone, ms'],
  cases.map(([name, rows]) => {
    const { weights, keys, flops } = bytesOf(name, rows);
    return [
      name,
      rows,
      weights / 1e9,
      keys / 1e9,
      flops / 1e9,
      ((weights + keys) / H100.bandwidth) * 1e3,
    ].map((x, i) => (i < 2 ? x : x.toFixed(i === 4 ? 0 : 2)));
  }),
);
for (const [title, variant] of variants) {
  console.log(`${title}:\n`);
  table(
    ['model', 'batch', 'launches a layer', 'launches', 'step, ms', 'tokens/s', 'share of 3.35 TB/s'],
    cases.map(([name, rows]) => {
      const { weights, keys } = bytesOf(name, rows);
      const { launches, perLayer, seconds } = step(name, rows, variant);
      const share = (weights + keys) / H100.bandwidth / seconds;
      return [
        name,
        rows,
        perLayer,
        launches,
        (seconds * 1e3).toFixed(2),
        Math.round(rows / seconds),
        share.toFixed(2),
      ];
    }),
  );
}
