// The words of a run: how it asked its problems, and how its model corrects itself, if it does.
import type { RunWords } from '../../config/schema.js';

/** Options win over the run. Without a run there are only corrections in the usual words, where those are asked for. */
export async function runWords({
  run,
  ...given
}: {
  readonly run?: string | undefined;
  readonly template?: string | undefined;
  readonly chat?: boolean | undefined;
  readonly system?: string | undefined;
  readonly corrections?: boolean | undefined;
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
  const { configOfRun } = await import('../../methods/config.js');
  const { methodOf } = await import('../../methods/table.js');
  const { questionWords } = await import('../../config/question.js');
  const config = await configOfRun(run);
  return methodOf(config).words?.(config) ?? questionWords('question' in config ? config.question : {});
}
