// The words of a run: how it asked its problems, and how its model corrects itself, if it does.
import type { CorrectionReading } from '../data/corrections/standing.js';

export interface RunWords {
  /** The text around a problem, and whether it is asked in a chat; absent: the usual ones. */
  readonly template?: string | undefined;
  readonly chat?: boolean | undefined;
  readonly corrections?: CorrectionReading | undefined;
}

/** Options win over the run. Without a run there are only corrections in the usual words, where those are asked for. */
export async function runWords({
  run,
  ...given
}: {
  readonly run?: string;
  readonly template?: string | undefined;
  readonly chat?: boolean;
  readonly system?: string;
  readonly corrections?: boolean;
}): Promise<RunWords> {
  const own = run === undefined ? {} : await ofRun(run);
  const isAskedOtherwise = [given.template, given.chat, given.system].some((value) => value !== undefined);
  const asked = isAskedOtherwise ? given : own;
  if (!isAskedOtherwise && own.template !== undefined)
    console.error(
      `problems are asked as in the run: ${JSON.stringify(own.template)}; --template changes that`,
    );
  const corrections = given.corrections === false ? undefined : own.corrections;
  return {
    template: asked.template,
    chat: asked.chat,
    corrections: corrections ?? (given.corrections ? {} : undefined),
  };
}

async function ofRun(run: string): Promise<RunWords> {
  const { join } = await import('node:path');
  const { parseRunConfig } = await import('../methods/config.js');
  const { readRunConfig } = await import('../run/directory.js');
  const { correctionReading } = await import('../methods/s3c/config.js');
  const { config } = parseRunConfig(await readRunConfig(run), { name: join(run, 'config.yaml') });
  if (config.method === 's3c') {
    const { template, chat } = config.format;
    return { template, ...(chat === 'auto' ? {} : { chat }), corrections: correctionReading(config) };
  }
  const template = config.method === 'ppo' ? config.rollout.template : questionOf(config);
  return template === undefined || template === 'auto' ? {} : { template, chat: false };
}

function questionOf(config: object): string | undefined {
  const { question } = config as { readonly question?: { readonly template: string } };
  return question?.template;
}
