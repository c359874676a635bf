// What a publication moves: the adapter's bytes through the shared folder, once, and nothing of the base on either side.
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { createAdapter } from '../../src/models/adapter.js';
import { remoteSource } from '../../src/remote/remote-source.js';
import { openDevice } from '../../src/runtime/device.js';
import { chatModel } from '../generate/chat-model.js';
import { lora } from '../serve/lora.js';
import { testServer } from '../serve/test-server.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

/** The configuration, the header of the tensors, and what a device adds to align them. */
const SMALL = 8192;

it('only the adapter travels: the trainer’s peak is what it holds, a server’s one adapter more', async () => {
  const directory = temporaryDirectory();
  const servers = [
    await testServer({ adapterRoot: directory }),
    await testServer({ adapterRoot: directory }),
  ] as const;
  const device = openDevice('cpu');
  const model = await loadModel(device, await chatModel());
  const adapter = createAdapter(device, model.decoder.config, { ...lora, r: 64 }, { seed: 1 });
  const source = remoteSource({
    url: servers.map(({ url }) => url),
    server: 'steptrain',
    model: 'pupil',
    adapters: { directory },
  });
  onTestFinished(() => {
    adapter.dispose();
    model.dispose();
    device.dispose();
  });
  const elements = adapter.trainable?.size ?? 0;
  const bytes = 4 * elements;
  expect(bytes).toBeGreaterThan(4 * SMALL);
  const devices = [device, ...servers.map((server) => server.device)];
  const held = () => devices.map((each) => each.stats().liveBytes);
  const before = held();
  for (const round of [1, 2, 3]) {
    adapter.trainable?.write(new Float32Array(elements).fill(round / 100));
    for (const each of devices) {
      await each.synchronize();
      each.resetPeak();
    }
    await source.publish(adapter, round);
    const [own, ...others] = devices.map((each, i) => each.stats().peakBytes - (before[i] as number));
    expect(own).toBe(0);
    // A new one is there before the earlier one goes.
    for (const peak of others) {
      expect(peak).toBeGreaterThanOrEqual(bytes);
      expect(peak).toBeLessThan(Math.min(round, 2) * bytes + SMALL);
    }
    const folders = readdirSync(directory);
    expect(folders).toHaveLength(1);
    const [folder = ''] = folders;
    const files = readdirSync(join(directory, folder)).sort();
    expect(files).toEqual(['adapter_config.json', 'adapter_model.safetensors']);
    const written = files.map((name) => statSync(join(directory, folder, name)).size);
    expect(written.reduce((sum, size) => sum + size, 0)).toBeLessThan(bytes + SMALL);
  }
  await source.close();
  expect(held()).toEqual(before);
});
