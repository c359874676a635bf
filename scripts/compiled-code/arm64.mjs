// What g++ made of the inner loops of ARM's kernels: multiply-adds, and vectors that are loaded for them. A loop that spills its
// accumulators, or that broadcasts where it could take a lane, gives the right numbers slowly, and without a processor of ARM at
// hand nothing else tells.
//   npm run test:code:arm64             builds for arm64 and compares with docs/kernels/compiled-code-arm64.md
//   npm run test:code:arm64 -- --write  writes it, after a change that was looked at
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const path = join(root, 'docs/kernels/compiled-code-arm64.md');
const addon = join(root, 'build/arm64/Release/steptrain.node');
/** Of the ideal number of multiply-adds for a load. */
const ENOUGH = 0.9;

/**
 * Name, the function that has the loop, and its loads where none is superfluous: vectors of X and of the panel, each once;
 * where factors are broadcast, which takes a load each, four or five of them for each vector of the other side.
 */
const LOOPS = [
  [
    'product in f32, 10 rows',
    'neon',
    /neon_tile::run<float, 10, 2, 0l, Stored<float> >/,
    { fma: 80, loads: 10 + 8 },
  ],
  ['product in f32, 1 row', 'neon', /neon_tile::run<float, 1, 2, 8l, Kept>/, { fma: 8, loads: 1 + 8 }],
  [
    'product in widened bf16, 6 rows',
    'neon',
    /neon_tile::run<bf16, 6, 2, 0l, Stored<bf16> >/,
    { fma: 96, loads: 6 + 8 },
  ],
  [
    'product in widened bf16, 1 row',
    'neon',
    /neon_tile::run<bf16, 1, 2, 8l, Kept>/,
    { fma: 16, loads: 1 + 8 },
  ],
  [
    'product by bfmmla, 8 rows',
    'neonbf16',
    /neon_tile::run_pairs<8, 2, 0l, Stored<bf16> >/,
    { fma: 32, loads: 8 + 8 },
  ],
  ['product by bfmmla, 1 row', 'neonbf16', /neon_tile::run_pairs<1, 2, 8l, Kept>/, { fma: 8, loads: 1 + 8 }],
  ['attention in f32, 4 rows', 'neon', /BlockForward<Single<float> >::score\(/, { fma: 16, loads: 4 + 4 }],
  ['attention by bfdot, 4 rows', 'neonbf16', /BlockForward<Paired>::score\(/, { fma: 16, loads: 4 + 4 }],
  [
    'weighted values in f32, 4 rows',
    'neon',
    /BlockForward<Single<float> >::add_tile</,
    { fma: 12, loads: 4 + 3 },
  ],
  [
    'weighted values by bfdot, 4 rows',
    'neonbf16',
    /BlockForward<Paired>::add_tile</,
    { fma: 12, loads: 4 + 3 },
  ],
  [
    'weighted values of new tokens, f32',
    'neon',
    /FewRows<Single<float> >::add_all_values<5, 3>/,
    { fma: 15, loads: 5 + 3 },
  ],
  [
    'gradients of weights, 4 columns',
    'neon',
    /by_vectors<4, \(anonymous namespace\)::product<false>/,
    { fma: 16, loads: 4 + 4 },
  ],
  ['attention of new tokens, f32', 'neon', /FewRows<Single<float> >::add_page\(/, { fma: 24, loads: 6 + 4 }],
  ['attention of new tokens, bfdot', 'neonbf16', /FewRows<Paired>::add_page\(/, { fma: 24, loads: 6 + 4 }],
];

function leave(message) {
  console.log(`compiled code of arm64: not compared, since ${message}`);
  process.exit(0);
}

/** Instructions by function: address, operation, operands. */
function* functions() {
  const { status, stdout, error } = spawnSync(
    'aarch64-linux-gnu-objdump',
    ['-dC', '--no-show-raw-insn', addon],
    {
      encoding: 'utf8',
      maxBuffer: 1 << 30,
    },
  );
  if (status !== 0)
    leave(`aarch64-linux-gnu-objdump did not read it: ${error?.message ?? `it ended with ${status}`}`);
  let found;
  for (const line of stdout.split('\n')) {
    const name = /^[0-9a-f]+ <(.*)>:$/.exec(line)?.[1];
    if (name) {
      if (found) yield found;
      found = { name: name.replaceAll('steptrain::', '').replaceAll('cpu::', ''), code: [] };
    }
    const [, address, operation, operands] = /^\s+([0-9a-f]+):\s+(\S+)\s*(.*)$/.exec(line) ?? [];
    if (address) found.code.push({ at: Number.parseInt(address, 16), operation, operands });
  }
  if (found) yield found;
}

const BRANCH = /^(b|b\.\w+|cbn?z|tbn?z)$/;
const target = ({ operation, operands }) =>
  BRANCH.test(operation) ? Number.parseInt(/([0-9a-f]+) </.exec(operands)?.[1] ?? 'x', 16) : Number.NaN;

/** Loops without a loop inside. */
function innermost(code) {
  const back = code
    .map((each) => ({ from: target(each), to: each.at }))
    .filter(({ from, to }) => from <= to && from >= code[0].at);
  return back
    .filter((loop) => !back.some((other) => other !== loop && other.from >= loop.from && other.to < loop.to))
    .map(({ from, to }) => code.filter(({ at }) => at >= from && at <= to));
}

const vectors = ({ operation, operands }) => {
  if (!/^[qdsv{]/.test(operands)) return 0;
  return operation === 'ldp' ? 2 : /^(ldr|ldur|ld1r?)$/.test(operation) ? 1 : 0;
};

function counted(body) {
  const sum = (of) => body.reduce((total, each) => total + of(each), 0);
  return {
    fma: sum(({ operation }) => (/^(fmla|bfmmla|bfdot)$/.test(operation) ? 1 : 0)),
    loads: sum(vectors),
    stores: sum(({ operation }) => (operation.startsWith('st') ? 1 : 0)),
  };
}

const version = spawnSync('aarch64-linux-gnu-g++', ['-dumpfullversion'], { encoding: 'utf8' }).stdout?.trim();
if (!version) leave('there is no aarch64-linux-gnu-g++');
const writes = process.argv.includes('--write');
const before = existsSync(path) ? readFileSync(path, 'utf8') : '';
const of = /g\+\+ (\d+\.\d+\.\d+)/.exec(before)?.[1];
if (!writes && of !== version) leave(`g++ is ${version}, and ${relative(root, path)} is of ${of}`);
const built = spawnSync(process.execPath, [join(root, 'scripts/build.mjs'), '--arch=arm64'], {
  stdio: 'inherit',
});
if (built.status !== 0) process.exit(1);

// Of the loops with so many multiply-adds the one with the fewest loads: what follows a loop and jumps back looks like one.
const best = new Map();
for (const { name, code } of functions()) {
  for (const [title, set, pattern, ideal] of LOOPS) {
    const bare = name.replaceAll(`${set}::`, '');
    if (!name.includes(`${set}::`) || !pattern.test(bare)) continue;
    for (const row of innermost(code).map(counted))
      if (row.fma === ideal.fma && row.loads < (best.get(title)?.loads ?? Infinity)) best.set(title, row);
  }
}
let failed = false;
const rows = LOOPS.map(([title, set, , ideal]) => {
  const found = best.get(title);
  if (!found) {
    console.log(`${title}: no such loop was found`);
    failed = true;
    return '';
  }
  const share = found.fma / found.loads / (ideal.fma / ideal.loads);
  if (share < ENOUGH) {
    console.log(
      `${title}: ${found.fma} multiply-adds for ${found.loads} loads, ${share.toFixed(2)} of ideal, less than ${ENOUGH}`,
    );
    failed = true;
  }
  return `| ${title} | ${set} | ${found.fma} | ${found.loads} | ${found.stores} | ${(ideal.fma / ideal.loads).toFixed(2)} | ${share.toFixed(2)} |`;
});
const page = `# What g++ makes of ARM's inner loops

Of each innermost loop: multiply-adds (fmla, bfmmla, bfdot), vectors loaded, stores (spilled registers), the
multiply-adds for a load where none is superfluous, and the share of it that is reached. A product takes its
factors as lanes of vectors of X, each loaded once; attention and the gradients of weights broadcast them, a
load each, so their ideal is lower. By g++ ${version}. These are counts of instructions: no processor of ARM
was timed.

\`npm run test:code:arm64 -- --write\` wrote it; \`npm run test:code:arm64\` compares, and refuses a share below
${ENOUGH}.

| loop | instruction set | multiply-adds | loads | stores | ideal for a load | share |
| --- | --- | --- | --- | --- | --- | --- |
${rows.join('\n')}
`;
if (writes) writeFileSync(path, page);
else if (page !== before) {
  const known = before.split('\n');
  for (const line of page.split('\n').filter((each) => !known.includes(each))) console.log(`+ ${line}`);
  failed = true;
}
console.log(
  `compiled code of arm64: ${rows.length} loops ${writes ? 'in' : failed ? 'are not all as in' : 'are as in'} ${relative(root, path)}`,
);
process.exit(failed ? 1 : 0);
