// What a run says goes to the program that started it, where that asks for it, and to nobody else.
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { resume, train } from '../../src/methods/run.js';
import { toLog } from '../../src/terminal/log.js';

let folder: string;
const at = (name: string) => join(folder, name);
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-log-'));
  vi.stubEnv('STEPTRAIN_CACHE', at('cache'));
});
afterAll(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  rmSync(folder, { recursive: true, force: true });
});

const config = (samples: number) => ({
  method: 'sft' as const,
  lora: { r: 2 },
  data: { source: 'arithmetic' as const, arithmetic: { samples }, max_length: 200 },
  sft: { max_steps: 3 },
  run: { device: 'cpu', threads: 1 },
});

/** Collects the lines of a run by level. */
function collected() {
  const lines: Record<string, string[]> = { info: [], warning: [], progress: [] };
  return { lines, log: (line: string, level: string) => void lines[level]!.push(line) };
}

test('two runs at a time tell each their own program, and nothing goes to standard error', async () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  const written = vi.spyOn(process.stderr, 'write').mockImplementation(() => true);
  const [one, other] = [collected(), collected()];
  const stop = new AbortController();
  await Promise.all([
    train(config(24), {
      output: at('one'),
      log: one.log,
      signal: stop.signal,
      onStep: ({ kind, step }) => kind === 'step' && step === 2 && stop.abort(),
    }),
    train(config(30), { output: at('other'), log: other.log }),
  ]);
  rmSync(join(at('one'), 'inputs.json'));
  const again = collected();
  await resume(at('one'), { log: again.log });
  expect(said).not.toHaveBeenCalled();
  expect(written).not.toHaveBeenCalled();
  expect(one.lines.info!.join('\n')).not.toBe(other.lines.info!.join('\n'));
  expect(other.lines.progress!.some((line) => /^sft step 3\/3 /.test(line))).toBe(true);
  expect(one.lines.progress!.some((line) => /^sft step 3\/3 /.test(line))).toBe(false);
  expect(again.lines.warning).toContainEqual(expect.stringMatching(/has no inputs\.json/));
  // Outside of a run it is as ever.
  toLog('a line');
  expect(said).toHaveBeenCalledExactlyOnceWith('a line');
});

test('a signal that was aborted before leaves no directory', async () => {
  const reason = new Error('enough');
  const options = { output: at('never'), signal: AbortSignal.abort(reason) };
  await expect(train(config(24), options)).rejects.toBe(reason);
  expect(existsSync(at('never'))).toBe(false);
});
