// Mistakes of users on the command line: each one sentence that names what and where, exit code 1, and nothing written.
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cli } from './run-cli.js';

let folder: string;
/** `NAME/` in an argument is this folder. */
const here = (text: string) => text.replaceAll('HERE/', `${folder}/`);

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-mistakes-'));
  for (const name of ['empty', 'run']) mkdirSync(join(folder, name), { recursive: true });
  writeFileSync(join(folder, 'file'), '');
  for (const name of ['config.yaml', 'metrics.jsonl']) writeFileSync(join(folder, 'run', name), '');
  writeFileSync(join(folder, 'none.jsonl'), '');
  writeFileSync(join(folder, 'rows.jsonl'), '{"prompt":"1+1","prediction":"2","answer":"2"}\n');
  writeFileSync(join(folder, 'solution.txt'), '1 + 1\n\n1+1=2\n');
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('a mistake', () => {
  it.each([
    ['nonsense', 'there is no command nonsense; npx steptrain --help lists them'],
    ['serve --port 99999', '--port expects a whole number from 0 to 65535, found 99999'],
    ['serve --adapter-root HERE/gone', '--adapter-root expects a directory that exists, found HERE/gone'],
    ['serve --cache-gb 1000000', /^--cache-gb expects less than the [\d.]+ GB of the device, found 1000000$/],
    [
      'run quickstart_sft --dry-run --plan-for 0GiB',
      '--plan-for expects an amount of memory such as 80GiB or 8x80GiB, found 0GiB',
    ],
    [
      'run quickstart_sft --dry-run --plan-for 8x80GiB --set lora=none --set run.shard_base=true --set run.gradient_checkpointing=true',
      'run.shard_base needs a run with LoRA, by a method that trains one role on its base; set it to false',
    ],
    [
      'run quickstart_sft --dry-run --set model.base=HERE/file',
      /^--set model.base=HERE\/file: HERE\/file is a file; name the directory of a model, or a \.gguf file$/,
    ],
    [
      'inspect checkpoint HERE/empty',
      'HERE/empty is no checkpoint: it has no readable checkpoint.json; expected a checkpoints/step-N of a run',
    ],
    ['merge HERE/gone HERE/empty HERE/merged', /^base: there is no HERE\/gone/],
    [
      'label HERE/rows.jsonl --output HERE/run',
      'HERE/run is the directory of a run; choose another one for results',
    ],
    [
      'eval solve HERE/rows.jsonl --model embedded --output HERE/run',
      'HERE/run is the directory of a run; choose another one for results',
    ],
    ['ui HERE/file', 'folder expects a directory that exists, found HERE/file'],
    ['generate hello -n x', '-n expects a number, found x'],
    ['generate hello -n 0', '-n expects a whole number of at least 1, found 0'],
    ['generate hello --adapter HERE/gone', /^--adapter: there is no HERE\/gone/],
    [
      'generate --file HERE/rows.jsonl --output HERE/gone/out.jsonl',
      'the folder of --output expects a directory that exists, found HERE/gone',
    ],
    ['grade HERE/empty', 'HERE/empty: is a directory; name a file in it'],
    ['data preview --count 0', '--count expects a whole number of at least 1, found 0'],
    ['data rationales quickstart HERE/out -k 0', '-k expects a whole number of at least 1, found 0'],
    ['data convert HERE/gone.jsonl HERE/out.jsonl', /^data convert: there is no HERE\/gone\.jsonl/],
    ['data convert HERE/none.jsonl HERE/out.jsonl', 'HERE/none.jsonl gives no solution; nothing was written'],
    ['eval show HERE/gone', /^there is no HERE\/gone; name the directory of a finished run/],
    ['eval show HERE/empty', /^HERE\/empty holds no eval\.json; name the directory of a finished run/],
    ['judge HERE/gone HERE/solution.txt', /^judge: there is no HERE\/gone \(looked for from/],
    ['judge HERE/empty HERE/solution.txt', /^judge: HERE\/empty is no model: it has no config\.json/],
    [
      'judge HERE/run HERE/solution.txt',
      'HERE/run holds neither adapter/ nor model/: its training has not ended; continue with: npx steptrain run --resume HERE/run',
    ],
    [
      'merge embedded HERE/run HERE/merged',
      'HERE/run is a run without an adapter: it trained every weight, or its training has not ended; continue with: npx steptrain run --resume HERE/run',
    ],
    ['merge embedded HERE/empty HERE/merged', 'HERE/empty is no adapter: it has no adapter_config.json'],
    [
      'judge embedded HERE/solution.txt',
      /^embedded judges no steps; expected what a run has trained to judge, a published reward model, a classification model, or word-problems/,
    ],
    [
      'judge HERE/run',
      'HERE/run is what judges; name the file to judge too: npx steptrain judge HERE/run problem.txt',
    ],
    [
      'judge HERE/run HERE/solution.txt --model HERE/run',
      'there are two judges, HERE/run and --model HERE/run; name one',
    ],
    ['run quickstart_sft --output HERE/file', 'HERE/file is no directory; name another one for the run'],
    ['run quickstart_sft --dry-run --set run.threads=3000', /^threads: expected a whole number from 0/],
    [
      'label HERE/rows.jsonl --output HERE/file',
      'cannot make the directory HERE/file: a file of this name is there already; name another one',
    ],
  ] as const)('%s', async (line, sentence) => {
    const { code, stderr } = await cli(...line.split(' ').map(here));
    const said = stderr.replaceAll(`${folder}/`, 'HERE/');
    if (typeof sentence === 'string') expect(said).toBe(sentence);
    else expect(said).toMatch(sentence);
    expect(code).toBe(1);
    expect(existsSync(join(folder, 'out.jsonl'))).toBe(false);
    expect(readdirSync(folder).filter((name) => name.includes('tmp'))).toEqual([]);
  });
});

it('merge and judge --base take a run for its adapter', async () => {
  // The adapter is damaged, which both say of the one inside the run.
  mkdirSync(join(folder, 'run/adapter'));
  writeFileSync(join(folder, 'run/adapter/adapter_config.json'), '{');
  for (const line of [
    'merge embedded HERE/run HERE/merged',
    'judge HERE/run HERE/solution.txt --base embedded',
  ]) {
    const { code, stderr } = await cli(...line.split(' ').map(here));
    expect(stderr).toContain(`${folder}/run/adapter/adapter_config.json`);
    expect(code).toBe(1);
  }
});
