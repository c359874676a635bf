// Rows of `steptrain doctor` on the addon, its instruction sets and GPUs.
import { statSync } from 'node:fs';
import { addon, addonSource } from '../../native/addon.js';
import { plural } from '../../native/shown.js';
import { nvidiaGpu } from '../../runtime/chosen-device.js';
import { openDevice } from '../../runtime/device.js';
import { type SelfTest, selfTest } from './self-test.js';

type Row = readonly [name: string, value: string];

/** Rows on the loaded addon. */
export function addonRows(): Row[] {
  const native = addon();
  const { path, failures } = addonSource()!;
  const device = openDevice('cpu');
  const { isa, threads } = device.info();
  device.dispose();
  return [
    ['addon', `${path}, ${(statSync(path).size / 1e6).toFixed(1)} MB`],
    ...failures
      .filter(({ reason }) => reason !== undefined)
      .map(({ path, reason }): Row => ['', `passed over: ${path}: ${reason}`]),
    ['cpu', `${isa} kernels (available: ${native.isas().join(', ')}), ${plural(threads, 'thread')}`],
    ...unbuiltRows(native.isas(), native.unbuiltIsas()),
    ...gpuRows(native.cudaDevices(), native.cudaObstacle(), nvidiaGpu()),
  ];
}

/** Best first. */
const ISAS = ['amx', 'avx512bf16', 'avx512', 'avx2', 'neonbf16', 'neon', 'portable'];

/** Rows on faster instruction sets of this processor, where the addon was compiled for another one. */
function unbuiltRows([built = '']: readonly string[], [unbuilt = '']: readonly string[]): Row[] {
  if (unbuilt === '' || ISAS.indexOf(unbuilt) > ISAS.indexOf(built)) return [];
  return [['', `${unbuilt} kernels would be faster, but are not in this build: npx steptrain build`]];
}

/** `hasGpu`: whether the driver shows one, which an addon without CUDA does not know. */
export function gpuRows(
  devices: readonly string[] | undefined,
  obstacle: string | undefined,
  hasGpu: boolean,
): Row[] {
  if (devices === undefined)
    return [
      [
        'cuda',
        `not in this build${hasGpu ? '; for the GPU here, with nvcc on the path: npx steptrain build --cuda' : ''}`,
      ],
    ];
  if (devices.length === 0) return [['cuda', `built in, but ${obstacle}`]];
  return devices.map((description, i) => [`cuda:${i}`, description]);
}

/** Tests every instruction set and GPU. The names of those that give other values. */
export async function testDevices(show: (name: string, value: string) => void): Promise<string[]> {
  const native = addon();
  const cases = [
    ...native.isas().map((isa) => ({ title: isa, device: 'cpu', options: { isa } })),
    ...(native.cudaDevices() ?? []).map((_, i) => ({ title: `cuda:${i}`, device: `cuda:${i}`, options: {} })),
  ];
  const failed: string[] = [];
  for (const { title, device, options } of cases) {
    const { seconds, wrong, doubt } = await selfTest(device, options).catch(
      (error: Error): SelfTest => ({ seconds: 0, wrong: [error.message] }),
    );
    if (wrong.length > 0) failed.push(title);
    show(
      'self-test',
      wrong.length > 0
        ? `${title} FAILED: ${wrong.join('; ')}`
        : `${title} passed in ${seconds.toFixed(2)} s`,
    );
    if (doubt !== undefined) show('', doubt);
  }
  return failed;
}
