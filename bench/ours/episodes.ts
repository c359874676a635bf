/** Episodes of an agent whose tool takes its time: rows that wait leave the batch, and others go on. */
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { wordProblems } from '#src/data/problems/generate.js';
import { calculatorEnvironment } from '#src/environments/calculator.js';
import { runEpisodes } from '#src/environments/episodes.js';
import { Generator } from '#src/generate/generator.js';
import { loadDecoder } from '#src/models/load.js';
import type { Device } from '#src/runtime/device.js';
import { loadTokenizer } from '#src/tokenizer/load.js';
import { endTokens } from '#src/tokenizer/reply-end.js';
import { median } from '../statistics.js';
import type { Metrics } from './runtime.js';

const AGENT = fileURLToPath(new URL('../../../../assets/word-problems-turns', import.meta.url));
const ROWS = 32;
const LATENCY_MS = 100;

/** Tokens a second of the package's agent in batches of 32 rows, with a calculator that answers at once and one that takes 100 ms. */
export async function waitingTools(device: Device, episodes: number): Promise<Metrics> {
  const decoder = await loadDecoder(device, AGENT, { dtype: 'f32' });
  const tokenizer = await loadTokenizer(AGENT);
  const tasks = [...wordProblems({ seed: 5, samples: episodes, levels: [0, 1] })].map(
    ({ problem, answer }) => ({ problem, answer }),
  );
  const speed = async (latency: number) => {
    const own = calculatorEnvironment();
    const environment = {
      ...own,
      async step(...given: Parameters<typeof own.step>) {
        if (latency > 0) await pause(latency);
        return own.step(...given);
      },
    };
    const generator = new Generator(decoder, { maxRows: ROWS, maxTokens: 512 * ROWS });
    const began = performance.now();
    const found = await runEpisodes(generator, tokenizer, environment, tasks, {
      ...{ maxLength: 256, maxNewTokens: 24, concurrency: episodes },
      eosTokenIds: endTokens(decoder.config, tokenizer),
    });
    const seconds = (performance.now() - began) / 1000;
    generator.dispose();
    const turns = (found ?? []).flatMap((episode) => episode.turns);
    return turns.reduce((sum, { tokens }) => sum + tokens.length, 0) / seconds;
  };
  const rounds: (readonly [number, number])[] = [];
  // The first round compiles JavaScript.
  for (let round = 0; round < 6; round++) rounds.push([await speed(0), await speed(LATENCY_MS)]);
  decoder.dispose();
  const [at0, at100] = [0, 1].map((i) => median(rounds.slice(1).map((pair) => pair[i] as number)));
  return {
    'tokens/s, tool at once': at0 as number,
    'tokens/s, tool in 100 ms': at100 as number,
    share: median(rounds.slice(1).map(([fast, slow]) => slow / fast)),
  };
}
