import { arch, availableParallelism, cpus, freemem, platform, totalmem } from 'node:os';
import type { CommandModule } from 'yargs';
import { packageVersion } from './version.js';

export const infoCommand: CommandModule = {
  command: 'info',
  describe: 'Show devices, instruction sets, threads and whether the native addon loads',
  builder: (argv) => argv.example('$0 info', 'what to paste into a bug report'),
  handler: async () => {
    const rows = [...systemRows(), ...(await addonRows())];
    const width = Math.max(...rows.map(([name]) => name.length));
    for (const [name, value] of rows) console.log(`${name.padEnd(width)}  ${value}`);
  },
};

type Row = readonly [name: string, value: string];

function systemRows(): Row[] {
  return [
    ['steptrain', packageVersion()],
    ['node', `${process.versions.node} on ${platform()}-${arch()}`],
    ['processor', `${cpus()[0]?.model.trim() ?? 'unknown'}, ${availableParallelism()} usable cores`],
    ['memory', `${gibibytes(totalmem())} GiB, ${gibibytes(freemem())} GiB free`],
  ];
}

// Here a missing addon is an answer, not a failure.
async function addonRows(): Promise<Row[]> {
  try {
    const { addon } = await import('../native/addon.js');
    const { openDevice } = await import('../runtime/device.js');
    const native = addon();
    const device = openDevice('cpu');
    const { isa, threads } = device.info();
    device.dispose();
    return [
      ['addon', 'loaded'],
      ['cpu', `${isa} kernels (available: ${native.isas().join(', ')}), ${threads} threads`],
      ...gpuRows(native.cudaDevices(), native.cudaObstacle()),
    ];
  } catch (error) {
    return [['addon', `not loaded: ${(error as Error).message}`]];
  }
}

function gpuRows(devices: readonly string[] | undefined, obstacle: string | undefined): Row[] {
  if (devices === undefined) return [['cuda', 'not in this build']];
  if (devices.length === 0) return [['cuda', `built in, but ${obstacle}`]];
  return devices.map((description, i) => [`cuda:${i}`, description]);
}

function gibibytes(bytes: number): string {
  return (bytes / 2 ** 30).toFixed(1);
}
