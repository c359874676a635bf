/** `steptrain run`: from a complete configuration to a trained model and its evaluation. */
import type { RunConfig } from '../config/schema.js';
import { addon } from '../native/addon.js';
import type { RunDirectory } from '../run/directory.js';
import { limitTime } from '../run/time-limit.js';
import { type Device, openDevice } from '../runtime/device.js';
import { readRunState } from './checkpoint.js';
import type { RunContext } from './context.js';
import { runPretrain } from './pretrain.js';
import type { RunResult } from './result.js';
import { runSft } from './sft.js';
import { runStepAmc } from './stepamc.js';

export async function runRecipe(
  config: RunConfig,
  run: RunDirectory,
  interruption: AbortSignal,
  options: { readonly resume: boolean },
): Promise<RunResult> {
  const { threads } = config.run;
  const device = openDevice(deviceName(config.run.device), threads > 0 ? { threads } : {});
  warnOfUnverified(device);
  const checkpoint = options.resume ? await run.latestCheckpoint() : undefined;
  const savedPlan = checkpoint ? (await readRunState(checkpoint.path)).plan : {};
  const time = limitTime(interruption, config.run.max_minutes);
  const { signal } = time;
  const context = <Config extends RunConfig>(own: Config): RunContext<Config> => ({
    config: own,
    device,
    run,
    signal,
    outOfTime: () => time.expired,
    savedPlan,
    engine: {
      device,
      run,
      signal,
      resume: options.resume,
      loggingSteps: config.run.logging_steps,
      maxSkipped: config.run.max_skipped_steps,
    },
  });
  const method = () => {
    switch (config.method) {
      case 'sft':
        return runSft(context(config));
      case 'stepamc':
        return runStepAmc(context(config));
      case 'pretrain':
        return runPretrain(context(config));
    }
  };
  try {
    const result = await method();
    return result.status === 'interrupted' && time.expired ? { ...result, outOfTime: true } : result;
  } finally {
    time.dispose();
    device.dispose();
  }
}

/** `auto` is the first GPU where the addon finds one. */
export function deviceName(name: string): string {
  if (name !== 'auto') return name;
  return addon().cudaDevices()?.length ? 'cuda:0' : 'cpu';
}

/** To go once docs/lab-notes.md lists nothing that no GPU has seen. */
function warnOfUnverified(device: Device): void {
  const { name, description } = device.info();
  if (name === 'cpu') return;
  console.error(
    `${name} (${description}): the CUDA kernels have been tested on an emulator only; scripts/gpu-check.sh tests them on ` +
      'this GPU, --set run.device=cpu does without them',
  );
}
