/** An environment behind HTTP: requests are those of a process, one a POST. */
import { exactText } from '../files/exact-json.js';
import { type Environment, failure, type Opening, type TurnReply } from './environment.js';

/** @throws StepTrainError where nothing answers at the address, or it gives no tools */
export async function httpEnvironment(url: string): Promise<Environment> {
  const ask = async (request: object): Promise<unknown> => {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: exactText(request),
    }).catch((error: unknown) => {
      const { cause } = error as { cause?: { message?: string } };
      throw failure(
        `the environment at ${url} does not answer (${cause?.message ?? (error as Error).message})`,
        error,
      );
    });
    const text = await response.text();
    let answer: { readonly error?: unknown } | undefined;
    try {
      answer = JSON.parse(text) as { readonly error?: unknown };
    } catch {}
    if (typeof answer?.error === 'string') throw failure(answer.error);
    if (!response.ok || typeof answer !== 'object' || answer === null)
      throw failure(
        `the environment at ${url} answered ${response.status} with ${JSON.stringify(text.slice(0, 120))}`,
      );
    return answer;
  };
  const { tools } = (await ask({ op: 'tools' })) as { tools?: unknown };
  return {
    tools: Array.isArray(tools) ? tools : [],
    reset: (task, episode) => ask({ op: 'reset', episode, task }) as Promise<Opening>,
    step: (turn, episode) => ask({ op: 'step', episode, turn }) as Promise<TurnReply>,
    close: (episode) =>
      ask({ op: 'close', episode }).then(
        () => {},
        () => {},
      ),
  };
}
