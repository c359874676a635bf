// How the model of `steptrain eval solve` corrects itself, if it does.
import type { CorrectionReading } from '../data/corrections/standing.js';

/** As its run learned it, or in the usual words where that is asked for; undefined: it does not. */
export async function correctionsOf({
  run,
  corrections,
}: {
  readonly run?: string;
  readonly corrections?: boolean;
}): Promise<CorrectionReading | undefined> {
  if (corrections === false) return undefined;
  if (run !== undefined) {
    const { join } = await import('node:path');
    const { parseRunConfig } = await import('../methods/config.js');
    const { readRunConfig } = await import('../run/directory.js');
    const { correctionReading } = await import('../methods/s3c/config.js');
    const { config } = parseRunConfig(await readRunConfig(run), { name: join(run, 'config.yaml') });
    if (config.method === 's3c') return correctionReading(config);
  }
  return corrections ? {} : undefined;
}
