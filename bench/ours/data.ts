/** Rows of a file into the token store of a run, as a run begins. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { completeRunConfig } from '#src/methods/config.js';
import { type TokenizeJob, tokenizeData } from '#src/run/tokenize.js';
import type { Device } from '#src/runtime/device.js';
import type { DataCase } from '../cases.js';
import { stopwatch } from './stopwatch.js';

export async function benchData(device: Device, item: DataCase, seconds: number): Promise<number[]> {
  const folder = mkdtempSync(join(tmpdir(), 'steptrain-bench-'));
  try {
    const train = join(folder, 'rows.jsonl');
    writeRows(item, train);
    const config = completeRunConfig({
      method: 'sft',
      data: { train, max_length: 2048 },
      model: { base: item.tokenizer },
      sft: { tokens_per_step: 4096 },
    });
    const { data, model, prompt } = config as unknown as TokenizeJob;
    return await stopwatch(device, seconds, async (run) => {
      const directory = join(folder, `store-${run}`);
      mkdirSync(directory);
      await tokenizeData({ data, model, prompt, directory }, () => {});
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The same rows as peers/data.py writes, as far as they are read. */
function writeRows({ file, rows }: DataCase, to: string): void {
  const lines = readFileSync(file, 'utf8').split('\n').filter(Boolean);
  const all = Array.from({ length: rows }, (_, i) => {
    const { question, steps } = JSON.parse(lines[i % lines.length] as string) as Row;
    const round = Math.floor(i / lines.length);
    const labels = steps.map((_, step) => (i + step) % 2);
    return JSON.stringify({ question: round > 0 ? `${question} (${round})` : question, steps, labels });
  });
  writeFileSync(to, `${all.join('\n')}\n`);
}

interface Row {
  readonly question: string;
  readonly steps: readonly string[];
}
