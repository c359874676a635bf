// Run by abandoned.test.ts with --expose-gc: tensors that are forgotten, kept, disposed and scoped; prints the bytes before and after.
import { setTimeout } from 'node:timers/promises';
import { openDevice } from '../../dist/entries/index.js';

const device = openDevice('cpu', { threads: 1 });
const used = () => device.stats().liveBytes;
const x = device.zeros([1024]);
const before = used();

function forget() {
  for (let i = 0; i < 3; i++) device.zeros([1024]);
  device.scope(() => device.ops.copy({ x }).y, 'forgetful');
  const kept = device.scope(() => device.keep(device.ops.copy({ x }).y));
  kept.dispose();
  device.scope(() => {
    device.ops.copy({ x });
  });
}

forget();
const forgotten = used() - before;
for (let turn = 0; turn < 20 && used() > before; turn++) {
  globalThis.gc();
  await setTimeout(10);
}
const left = used() - before;
forget();
for (let turn = 0; turn < 5; turn++) {
  globalThis.gc();
  await setTimeout(10);
}
// `x` is still in use.
console.log(JSON.stringify({ forgotten, left, x: (await x.read())[0] }));
device.dispose();
