/** Environments by what a user writes. */
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { badFile, badOption } from '../files/data-error.js';
import { nearestName } from '../native/nearest.js';
import { boxesEnvironment } from './boxes.js';
import { calculatorEnvironment } from './calculator.js';
import type { Environment } from './environment.js';
import { httpEnvironment } from './http.js';
import { processEnvironment } from './process.js';

const OWN: Readonly<Record<string, () => Environment>> = {
  calculator: calculatorEnvironment,
  boxes: boxesEnvironment,
};

/**
 * Opens `calculator` or `boxes`; an address over HTTP; a module of JavaScript or TypeScript, whose default export is an environment or
 * makes one; or a command, which then speaks lines of JSON.
 *
 * @throws DataError for an unknown name and for a module without an environment; StepTrainError for one that does not answer
 */
export async function openEnvironment(name: string): Promise<Environment> {
  const own = OWN[name];
  if (own) return own();
  if (/^https?:\/\//.test(name)) return httpEnvironment(name);
  if (/^\S+\.[cm]?[jt]s$/.test(name)) return moduleEnvironment(name);
  if (/^[\w-]+$/.test(name)) {
    const nearest = nearestName(name, Object.keys(OWN));
    throw badOption(
      `there is no environment ${JSON.stringify(name)}; ${nearest ? `did you mean ${nearest}? Expected` : 'expected'} ` +
        `${Object.keys(OWN).join(', ')}, an address, a module such as ./world.mjs, or a command with its arguments`,
    );
  }
  return processEnvironment(name);
}

async function moduleEnvironment(path: string): Promise<Environment> {
  const file = resolve(path);
  const loaded = (await import(pathToFileURL(file).href).catch((error: unknown) => {
    throw badFile(`the module of the environment cannot be loaded: ${(error as Error).message}`, { file });
  })) as { readonly default?: unknown };
  const given = typeof loaded.default === 'function' ? ((await loaded.default()) as unknown) : loaded.default;
  const { reset, step } = (given ?? {}) as { reset?: unknown; step?: unknown };
  if (typeof reset === 'function' && typeof step === 'function') return given as Environment;
  throw badFile(
    'the module of the environment has no default export with reset and step; write: export default { tools: […], reset(task, episode) { … }, step(turn, episode) { … } }',
    { file },
  );
}
