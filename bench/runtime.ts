import type { MetricSuite } from './cases.js';
import { metricCases } from './groups.js';
import { type Spread, spread } from './statistics.js';
import { ourTrial } from './trial-process.js';

export interface RuntimeResult {
  readonly name: string;
  readonly metrics: Readonly<Record<string, Spread>>;
  readonly error?: string;
}

const REPEATED: readonly string[] = ['queue', 'small model', 'shared attention'];

/** Short ones over as many trials as there are pairs; the long ones once. Those alone with `match` in their name. */
export async function measureRuntime(
  suite: MetricSuite,
  { pairs, match }: { readonly pairs: number; readonly match: string },
  progress: (text: string) => void,
): Promise<readonly RuntimeResult[]> {
  const results: RuntimeResult[] = [];
  for (const item of metricCases(suite).filter(({ name }) => name.includes(match))) {
    const metrics: Record<string, number[]> = {};
    let error: string | undefined;
    const rounds = REPEATED.includes(item.measure) ? pairs : 1;
    for (let round = 1; round <= rounds && error === undefined; round++) {
      progress(`${suite}: ${item.name}, round ${round} of ${rounds}`);
      const trial = ourTrial(item.env);
      const reply = await trial.request({ item, setting: '', seconds: 0 });
      await trial.close();
      if ('error' in reply) error = reply.error;
      else
        for (const [name, value] of Object.entries(reply.metrics ?? {})) {
          metrics[name] ??= [];
          metrics[name].push(value);
        }
    }
    results.push({
      name: item.name,
      metrics: Object.fromEntries(Object.entries(metrics).map(([name, values]) => [name, spread(values)])),
      ...(error === undefined ? {} : { error }),
    });
  }
  return results;
}
