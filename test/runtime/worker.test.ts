// The threads of the addon never block the end of a process or worker. Child processes load the compiled package.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { goldenDirectory } from '../models/golden.js';
import { PATIENCE_MS } from '../patience.js';
import { repetitions } from '../repetitions.js';

const INDEX = new URL('../../dist/entries/index.js', import.meta.url);
const compiled = existsSync(INDEX);
if (!compiled) console.warn('skipped: dist/ is absent; run "npm run build"');

async function run(args: readonly string[]) {
  const child = spawn(process.execPath, args, { timeout: PATIENCE_MS / 2 });
  let output = '';
  let errors = '';
  child.stdout.on('data', (text) => {
    output += text;
  });
  child.stderr.on('data', (text) => {
    errors += text;
  });
  const [code, signal] = await once(child, 'close');
  return { code, signal, output: output.trim(), errors };
}

const script = (body: string) => [
  '--input-type=module',
  '-e',
  `import { openDevice } from ${JSON.stringify(INDEX.href)};\n${body}`,
];

const times = repetitions(10, 100);
test.skipIf(!compiled)(
  `a worker that is the only user of the addon can be terminated during a step, ${times} times`,
  async () => {
    const file = fileURLToPath(new URL('terminated-workers.mjs', import.meta.url));
    const result = await run([file, goldenDirectory('qwen2'), String(times)]);
    expect(result).toEqual({ code: 0, signal: null, output: `ended ${times}`, errors: '' });
  },
);

test.skipIf(!compiled)('a process with an idle open device ends by itself', async () => {
  const result = await run(
    script(`const device = openDevice('cpu');
      const x = device.tensor(new Float32Array([1, 2]));
      const values = await x.read();
      // What the garbage collector finds undisposed is warned of.
      x.dispose();
      console.log(values.join());`),
  );
  expect(result).toEqual({ code: 0, signal: null, output: '1,2', errors: '' });
});

test.skipIf(!compiled)('a pending read keeps the process alive until it resolves', async () => {
  const result = await run(
    script(`const device = openDevice('cpu');
      const last = device.scope(() => {
        let x = device.zeros([1 << 22]);
        for (let i = 0; i < 50; i++) x = device.ops.add({ x, y: x }).z;
        return x;
      });
      last.read().then((values) => {
        last.dispose();
        console.log(values.length);
      });`),
  );
  expect(result).toEqual({ code: 0, signal: null, output: String(1 << 22), errors: '' });
});

test.skipIf(!compiled)('a process can exit with work in the queue', async () => {
  const result = await run(
    script(`const device = openDevice('cpu');
      let x = device.zeros([1 << 22]);
      for (let i = 0; i < 1000; i++) device.ops.add({ x, y: x }).z.dispose();
      process.exit(3);`),
  );
  expect(result).toEqual({ code: 3, signal: null, output: '', errors: '' });
});

test.skipIf(!compiled)('garbage collection of a device does not crash the process', async () => {
  const result = await run([
    '--expose-gc',
    ...script(`for (let i = 0; i < 30; i++) {
        openDevice('cpu', { threads: 2 }).zeros([1000]);
        gc();
        await new Promise(setImmediate);
      }
      console.log('survived');`),
  ]);
  expect(result).toMatchObject({ code: 0, signal: null, output: 'survived' });
  expect(result.errors).toMatch(/^\(node:\d+\) \[STEPTRAIN_ABANDONED_TENSOR\][^\n]*\n[^\n]*\n$/);
});
