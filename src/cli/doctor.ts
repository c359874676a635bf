import { existsSync } from 'node:fs';
import { availableParallelism, freemem, release, totalmem } from 'node:os';
import { StepTrainError } from '../native/errors.js';
import { packageVersion } from '../native/version.js';
import { processorName } from './doctor/processor.js';
import { command } from './line/command.js';

type Row = readonly [name: string, value: string];

export const doctorCommand = command({
  command: 'doctor',
  describe: 'Show versions, devices, driver, memory and caches, and test each device for some seconds',
  builder: (argv) =>
    argv
      .option('self-test', { type: 'boolean', default: true, describe: 'Compare results with stored values' })
      .example('$0 doctor', 'what to paste into a bug report')
      .example('$0 doctor --no-self-test', 'the same without running anything'),
  handler: async ({ 'self-test': tested }) => {
    // Each row is printed as it is known: the rest may crash.
    const show = (rows: readonly Row[]) => {
      for (const [name, value] of rows) console.log(`${name.padEnd(11)}${value}`);
    };
    show(await systemRows());
    const devices = await import('./doctor/devices.js');
    const { addon } = await import('../native/addon.js');
    try {
      addon();
    } catch (error) {
      show([['addon', 'not loaded']]);
      throw error;
    }
    show(devices.addonRows());
    if (!tested) return;
    const wrong = await devices.testDevices((name, value) => show([[name, value]]));
    if (wrong.length === 0) return;
    throw new StepTrainError(
      'E_SELF_TEST',
      `${wrong.join(' and ')} ${wrong.length === 1 ? 'gives' : 'give'} other values than those stored: do not train on ${wrong.length === 1 ? 'it' : 'them'}; please report the lines above`,
    );
  },
});

async function systemRows(): Promise<Row[]> {
  const { thisPlatform } = await import('../native/loader.js');
  const { platform, arch, runtime, glibc } = thisPlatform();
  const library = glibc === undefined ? ', no glibc' : glibc === 'unknown' ? '' : `, glibc ${glibc}`;
  return [
    ['steptrain', packageVersion()],
    ['runtime', `${runtime} on ${platform}-${arch}`],
    ['system', `${release()}${library}`],
    ['processor', `${processorName()}, ${availableParallelism()} usable cores`],
    ['memory', memory()],
    ...(await cacheRows()),
    ...settings(),
  ];
}

/** A container may allow less than the machine has. */
function memory(): string {
  const limit = process.constrainedMemory();
  const limited = limit > 0 && limit < totalmem() ? `, ${gibibytes(limit)} GiB allowed here` : '';
  return `${gibibytes(totalmem())} GiB, ${gibibytes(freemem())} GiB free${limited}`;
}

async function cacheRows(): Promise<Row[]> {
  const { hubSettings } = await import('../hub/settings.js');
  const { cacheDirectory } = await import('../files/cache.js');
  const { cache, endpoint, offline, token } = hubSettings();
  const state = (path: string) => `${path}${existsSync(path) ? '' : ' (not there yet)'}`;
  return [
    ['cache', state(cacheDirectory())],
    ['hub', `${state(cache)}, ${offline ? 'offline' : endpoint}${token ? ', with a token' : ''}`],
  ];
}

/** Variables that affect the program. Values of others, tokens among them, do not belong in a bug report. */
function settings(): Row[] {
  const names = /^(STEPTRAIN_(?!SERVE)|CUDA_|NVIDIA_|LD_LIBRARY_PATH$|LD_PRELOAD$|MALLOC_|OMP_)/;
  const secret = /KEY|TOKEN|SECRET|PASSWORD/;
  const found = Object.entries(process.env).filter(([name]) => names.test(name) && !secret.test(name));
  return found.map(([name, value]): Row => ['variable', `${name}=${value}`]);
}

function gibibytes(bytes: number): string {
  return (bytes / 2 ** 30).toFixed(1);
}
