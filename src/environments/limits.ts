/** Bounds on what environments may take. */
import { failure } from './environment.js';

/** The result of a call. @throws StepTrainError where it takes longer, or what the call throws */
export async function within<T>(seconds: number, what: string, call: () => T | Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(failure(`${what}: no answer within ${seconds} s`)), 1000 * seconds);
  });
  try {
    return await Promise.race([Promise.resolve().then(call), late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Runs at most `most` calls at a time; others wait in turn. */
export function atMost(most: number): <T>(call: () => Promise<T>) => Promise<T> {
  const waiting: (() => void)[] = [];
  let running = 0;
  return async (call) => {
    if (running >= most) await new Promise<void>((resolve) => waiting.push(resolve));
    else running++;
    try {
      return await call();
    } finally {
      // Whoever waits takes the place over, so that nobody who comes meanwhile has it too.
      const next = waiting.shift();
      if (next) next();
      else running--;
    }
  };
}
