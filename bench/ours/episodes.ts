/** Episodes of the package's agent with its calculator: rows that wait for a tool leave the batch, and others go on. */
import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { calculatorEnvironment } from '#src/environments/calculator.js';
import { runEpisodes } from '#src/environments/episodes.js';
import { Generator } from '#src/generate/generator.js';
import { loadDecoder } from '#src/models/load.js';
import type { Device } from '#src/runtime/device.js';
import { loadTokenizer } from '#src/tokenizer/load.js';
import { endTokens } from '#src/tokenizer/reply-end.js';
import type { EpisodeCase } from '../cases.js';

/** Seconds per 1,000 drawn tokens, by round of all episodes; the first round warms up. */
export async function benchEpisodes(
  device: Device,
  { model, file, generations, rows, latency, newTokens, maxLength }: EpisodeCase,
  seconds: number,
): Promise<number[]> {
  const decoder = await loadDecoder(device, model, { dtype: 'f32' });
  const tokenizer = await loadTokenizer(model);
  const problems = readFileSync(file, 'utf8').trimEnd().split('\n');
  const tasks = problems.map((line) => JSON.parse(line) as { problem: string; answer: string });
  const own = calculatorEnvironment();
  const environment = {
    ...own,
    async step(...given: Parameters<typeof own.step>) {
      if (latency > 0) await pause(latency);
      return own.step(...given);
    },
  };
  const generator = new Generator(decoder, { maxRows: rows, maxTokens: 512 * rows });
  const round = async () => {
    const began = performance.now();
    const found = await runEpisodes(generator, tokenizer, environment, tasks, {
      ...{ n: generations, maxLength, maxNewTokens: newTokens, concurrency: generations * tasks.length },
      eosTokenIds: endTokens(decoder.config, tokenizer),
    });
    const taken = (performance.now() - began) / 1000;
    const drawn = (found ?? []).flatMap(({ turns }) => turns.map(({ tokens }) => tokens.length));
    return { taken, perThousand: (1000 * taken) / drawn.reduce((sum, count) => sum + count, 0) };
  };
  await round();
  const samples: number[] = [];
  for (let spent = 0; spent < seconds || samples.length < 3; ) {
    const { taken, perThousand } = await round();
    spent += taken;
    samples.push(perThousand);
  }
  generator.dispose();
  decoder.dispose();
  return samples;
}
