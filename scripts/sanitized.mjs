// The native code under sanitizers, in builds of their own below build/.
//   node scripts/sanitized.mjs address [vitest arguments]   the addon under AddressSanitizer and UndefinedBehaviorSanitizer in Node, by default
//                                                            with the tests of ops, runtime and hostile input; portable and AVX2 kernels
//   node scripts/sanitized.mjs thread                        test/native/threads.cc (queue, pool, allocator) under ThreadSanitizer
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { join, resolve } from 'node:path';

const root = resolve(import.meta.dirname, '..');
const require = createRequire(import.meta.url);
const [kind, ...rest] = process.argv.slice(2);

function run(command, args, env = {}) {
  const { status } = spawnSync(command, args, {
    cwd: root,
    stdio: 'inherit',
    env: { ...process.env, ...env },
  });
  if (status !== 0) process.exit(status ?? 1);
}

/** Path of a library that comes with g++. */
const library = (name) => execFileSync('g++', [`-print-file-name=${name}`], { encoding: 'utf8' }).trim();

if (kind === 'address') {
  const build = join(root, 'build/asan');
  const headers = require('node-api-headers').include_dir;
  run('cmake', [
    ...['-S', '.', '-B', build, '-DSTEPTRAIN_SANITIZE=address,undefined', '-DSTEPTRAIN_CUDA=OFF'],
    // The wider sets are the same sources. Each file alone also shows that it includes what it uses.
    ...['-DSTEPTRAIN_ISAS=portable;avx2', '-DSTEPTRAIN_UNITS=OFF'],
    `-DCMAKE_JS_INC=${headers}`,
  ]);
  run('cmake', ['--build', build, '-j', String(availableParallelism())]);
  const tests = ['test/ops', 'test/runtime', 'test/attacks'];
  const vitest = join(root, 'node_modules/vitest/vitest.mjs');
  run(process.execPath, [vitest, 'run', '--testTimeout', '600000', ...(rest.length > 0 ? rest : tests)], {
    STEPTRAIN_ADDON: join(build, 'steptrain.node'),
    LD_PRELOAD: `${library('libasan.so')} ${library('libubsan.so')}`,
    // Node itself ends without freeing everything.
    ASAN_OPTIONS: 'detect_leaks=0:abort_on_error=1:allocator_may_return_null=1',
    UBSAN_OPTIONS: 'print_stacktrace=1',
  });
} else if (kind === 'thread') {
  const program = join(root, 'build/tsan/threads');
  mkdirSync(join(root, 'build/tsan'), { recursive: true });
  const sources = ['test/native/threads.cc', 'core/queue.cc', 'core/allocator.cc', 'core/ops.cc'];
  const flags = ['-std=c++20', '-O1', '-g1', '-fsanitize=thread', '-I.', '-pthread', '-o', program];
  run('g++', [
    ...flags,
    ...sources,
    'core/signature.cc',
    'core/waiter.cc',
    'cpu/runtime/event_count.cc',
    'cpu/runtime/thread_pool.cc',
  ]);
  // Kernels that scatter memory widely leave this sanitizer no room.
  run('setarch', ['-R', program], { TSAN_OPTIONS: 'halt_on_error=1' });
} else {
  console.error('sanitized: expected address or thread');
  process.exit(2);
}
