// steptrain generate and steptrain chat: sources of prompts, output, and refusals.
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { beforeEach, describe, expect, it } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { type ChatOptions, chat } from '../../src/cli/chat-loop.js';
import { promptsFrom } from '../../src/cli/generate/prompts.js';
import { completeRunConfig, formatRunConfig } from '../../src/methods/config.js';
import { completeSaved } from '../../src/methods/saved-models.js';
import { openDevice } from '../../src/runtime/device.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import { chatModel, END_OF_TURN, TEMPLATE } from '../generate/chat-model.js';
import { changedAdapter } from '../models/changed-model.js';
import { goldenDirectory } from '../models/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';
import { cli } from './run-cli.js';

let folder: string;
beforeEach(() => {
  folder = temporaryDirectory();
});

/** By the arithmetic model of the package, where the test names none. */
const generate = (...args: readonly string[]) => {
  const named = args.some((arg) => ['--model', '--adapter'].includes(arg));
  return cli('generate', '--device', 'cpu', ...(named ? [] : ['--model', 'embedded']), ...args);
};
const few = ['--max-new-tokens', '5'];

function file(name: string, ...lines: readonly unknown[]): string {
  const path = join(folder, name);
  writeFileSync(
    path,
    lines.map((line) => (typeof line === 'string' ? line : `${JSON.stringify(line)}\n`)).join(''),
  );
  return path;
}

const rowsOf = (text: string) =>
  text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));

describe('steptrain generate', () => {
  it('prints the text that the embedded model writes after a prompt', async () => {
    const { code, stdout } = await generate('12;-6;+7\n12-6=', '--temperature', '0', ...few);
    expect([code, stdout]).toEqual([0, '6\n']);
  });

  it('copies the numbers of a row with all their digits and their kind', async () => {
    const copied = '"id":12345678901234567890,"weight":2.0';
    const rows = file('numbers.jsonl', `{"prompt":"1+2=",${copied}}\n`);
    expect((await generate('--file', rows, '--json', ...few)).stdout).toContain(copied);
    const output = join(folder, 'numbers-out.jsonl');
    await generate('--file', rows, '--output', output, ...few);
    expect(readFileSync(output, 'utf8')).toContain(copied);
  });

  it('prints a heading for each of several samples, and the same samples for the same seed', async () => {
    const args = ['1+2=', '3+4=', '-n', '2', '--seed', '7', ...few];
    const first = await generate(...args);
    expect(first.stdout.match(/^--- .*$/gm)).toEqual([
      '--- prompt 1, sample 1',
      '--- prompt 1, sample 2',
      '--- prompt 2, sample 1',
      '--- prompt 2, sample 2',
    ]);
    expect((await generate(...args, '--max-rows', '1')).stdout).toBe(first.stdout);
  });

  it('keeps the columns of rows and adds the completion, ready for grading', async () => {
    const path = file('in.jsonl', { question: '12-6=', answer: '6' }, { question: '1+1=', answer: '2' });
    const output = join(folder, 'out.jsonl');
    const args = ['--file', path, '--column', 'question', '-n', '2', '--temperature', '0', ...few];
    const { code, stderr } = await generate(...args, '--output', output);
    expect([code, stderr.split('\n').at(-1)]).toEqual([0, `4 samples are in ${output}`]);
    const rows = rowsOf(readFileSync(output, 'utf8'));
    expect(rows.map(({ question, answer, sample }) => [question, answer, sample])).toEqual([
      ['12-6=', '6', 0],
      ['12-6=', '6', 1],
      ['1+1=', '2', 0],
      ['1+1=', '2', 1],
    ]);
    expect(rows[0]).toMatchObject({ prediction: '6\n', finish_reason: 'stop', tokens: [54, 10, 257] });
    expect(rows[0].logprobs).toHaveLength(3);
    expect((await generate(...args, '--json')).stdout).toBe(readFileSync(output, 'utf8').trimEnd());
    expect((await cli('grade', output, '--json')).stdout).toContain('"rows": 4');
    expect((await generate(...args, '--output', output)).stderr).toBe(
      `${output} is there already; choose another file for --output`,
    );
  });

  it('uses the model of a run with its adapter', async () => {
    const golden = goldenDirectory('qwen2');
    const run = join(folder, 'run');
    mkdirSync(run);
    cpSync(join(golden, 'adapter'), join(run, 'adapter'), { recursive: true });
    const config = completeRunConfig({
      method: 'sft',
      model: { base: golden, tokenizer: 'bytes' },
      data: { source: 'arithmetic' },
    });
    writeFileSync(join(run, 'config.yaml'), formatRunConfig(config, { head: 'A run' }));
    await completeSaved(run, config, byteTokenizer());
    const { stdout } = await generate('--model', run, 'abc', '--json', ...few);
    const device = openDevice('cpu');
    const model = await loadModel(device, golden, { adapter: join(golden, 'adapter') });
    const samples = await model.generate([byteTokenizer().encode('abc')], { maxNewTokens: 5 });
    expect(rowsOf(stdout)[0].tokens).toEqual(samples[0]?.[0]?.tokens);
    const plain = await generate('--model', golden, '--tokenizer', 'bytes', 'abc', '--json', ...few);
    expect(rowsOf(plain.stdout)[0].logprobs).not.toEqual(rowsOf(stdout)[0].logprobs);
    const adapted = ['--model', golden, '--adapter', join(golden, 'adapter'), '--tokenizer', 'bytes'];
    expect((await generate(...adapted, 'abc', '--json', ...few)).stdout).toBe(stdout);
    device.dispose();
  });

  it('renders texts and messages by the chat template', async () => {
    const model = await chatModel();
    const path = file('chat.jsonl', { messages: [{ role: 'user', content: 'Hi' }] });
    const options = ['--model', model, '--json', ...few];
    const fromRow = rowsOf((await generate(...options, '--file', path)).stdout)[0].tokens;
    const asMessage = rowsOf((await generate(...options, '--chat', 'Hi')).stdout)[0].tokens;
    const asText = rowsOf((await generate(...options, 'Hi')).stdout)[0].tokens;
    const withSystem = rowsOf(
      (await generate(...options, '--chat', '--system', 'Be brief.', 'Hi')).stdout,
    )[0];
    expect(asMessage).toEqual(fromRow);
    expect(asText).not.toEqual(fromRow);
    expect(withSystem.tokens).not.toEqual(fromRow);
  });

  it.each<[string, readonly string[], string]>([
    ['no prompt', [], 'name a prompt, or a file of them with --file FILE (- is standard input)'],
    ['an empty prompt', ['a', ''], 'prompt 2 is empty; expected a text to go on from'],
    ['prompts and a file', ['a', '--file', 'b.jsonl'], 'name prompts or --file FILE, not both'],
    ['no samples', ['a', '-n', '0'], '-n expects a whole number of at least 1, found 0'],
    ['half a row', ['a', '--max-rows', '1.5'], '--max-rows expects a whole number of at least 1, found 1.5'],
    [
      'no tokens',
      ['a', '--max-new-tokens', '0'],
      '--max-new-tokens expects a whole number of at least 1, found 0',
    ],
    ['cold', ['a', '--temperature', '-1'], '--temperature expects a number of at least 0, found -1'],
    [
      'nothing of the nucleus',
      ['a', '--top-p', '0'],
      '--top-p expects a number above 0 and at most 1, found 0',
    ],
    ['a word for a number', ['a', '--top-k', 'x'], '--top-k expects a number, found x'],
    [
      'another kind of file',
      ['a', '--output', 'b.txt'],
      '--output expects a file name that ends in .jsonl, found b.txt',
    ],
    ['a system message without --chat', ['a', '--system', 'x'], '--system needs --chat'],
    [
      'a model that is not there',
      ['a', '--model', 'nope'],
      `--model: there is no nope (looked for from ${process.cwd()})`,
    ],
    [
      'a chat with a model that has no template',
      ['a', '--chat'],
      'prompt 1: the tokenizer has no chat template; add chat_template.jinja to the model directory or use a plain prompt template',
    ],
    ['a file that is not there', ['--file', 'nope.txt'], 'cannot read nope.txt: no such file or directory'],
    [
      'a misspelt model',
      ['a', '--model', 'word-problem'],
      `--model: there is no word-problem (looked for from ${process.cwd()}); did you mean word-problems?`,
    ],
    [
      'a directory that is no model',
      ['a', '--model', 'src'],
      '/src is no model: it has no config.json; name',
    ],
    [
      'a directory that is no adapter',
      ['a', '--adapter', 'src'],
      '--adapter: src is no adapter: it has no adapter_config.json',
    ],
    ['a run without a model', ['a', '--model', 'nope'], 'nope'],
  ])('refuses %s', async (_, args, sentence) => {
    const { code, stdout, stderr } = await generate(...args);
    expect(stderr.replaceAll(/\s+/g, ' ')).toContain(sentence);
    expect([code > 0, stdout]).toEqual([true, '']);
  });

  it('goes on where it was interrupted, and ends with the samples of one that was not', async () => {
    const path = file('in.jsonl', ...Array.from({ length: 600 }, (_, i) => ({ prompt: `${i}+1=` })));
    const output = join(folder, 'stopped.jsonl');
    // Once some samples have ended.
    const stop = setInterval(() => existsSync(`${output}.part`) && process.emit('SIGINT'), 50);
    const { code, stderr } = await generate('--file', path, '--output', output, '--max-rows', '8');
    clearInterval(stop);
    expect(code).toBe(130);
    const [, finished] = /Stopped when (\d+) of 600 samples were finished; /.exec(stderr) ?? [];
    expect(existsSync(output)).toBe(false);
    expect(rowsOf(readFileSync(`${output}.part`, 'utf8'))).toHaveLength(Number(finished) + 1);

    const other = await generate('--file', path, '--output', output, '--max-rows', '8', '--top-k', '3');
    expect([other.code, other.stderr]).toEqual([
      1,
      expect.stringMatching(
        /holds samples of a stopped command whose topK was 0, and it is 3 now; go on with/,
      ),
    ]);

    const quantised = await generate('--file', path, '--output', output, '--quantize', 'int8');
    expect([quantised.code, quantised.stderr]).toEqual([
      1,
      expect.stringMatching(/holds samples of a stopped command whose (quantize|weights) was/),
    ]);

    const again = await generate('--file', path, '--output', output);
    expect([again.code, again.stderr]).toEqual([
      0,
      expect.stringContaining(`${finished} of 600 samples are there already`),
    ]);
    expect(existsSync(`${output}.part`)).toBe(false);
    const whole = join(folder, 'whole.jsonl');
    expect((await generate('--file', path, '--output', whole)).code).toBe(0);
    expect(readFileSync(output, 'utf8')).toBe(readFileSync(whole, 'utf8'));
  });

  it('refuses an adapter that writes no text', async () => {
    const adapter = join(goldenDirectory('heads'), 'sequence-adapter');
    const args = ['--model', goldenDirectory('llama3'), '--tokenizer', 'bytes', '--adapter', adapter, 'a'];
    expect(await generate(...args)).toMatchObject({
      code: 1,
      stdout: '',
      stderr: `${adapter} is a classifier such as a reward network (task_type SEQ_CLS): it scores text and writes none; name an adapter of a language model`,
    });
  });

  it('refuses an adapter of another model, and warns where that cannot be told', async () => {
    const own = goldenDirectory('llama3');
    const other = join(folder, 'other');
    cpSync(own, other, { recursive: true });
    const weights = join(other, 'model.safetensors');
    const bytes = readFileSync(weights);
    bytes.writeUInt8((bytes.at(-1) ?? 0) ^ 1, bytes.length - 1);
    writeFileSync(weights, bytes);
    const adapter = changedAdapter('llama3', { base_model_name_or_path: other });
    const args = ['--tokenizer', 'bytes', '--adapter', adapter, 'a', ...few];
    const refused = await generate('--model', own, ...args);
    expect(refused).toMatchObject({
      code: 1,
      stdout: '',
      stderr: `${adapter} was trained on ${other}, and ${own} is another model; name that one, or use it all the same with --other-base`,
    });
    expect((await generate('--model', own, '--other-base', ...args)).code).toBe(0);
    expect((await generate('--model', other, ...args)).code).toBe(0);
    const unknown = changedAdapter('llama3', { base_model_name_or_path: 'models/unknown' });
    const warned = await generate('--model', own, '--tokenizer', 'bytes', '--adapter', unknown, 'a', ...few);
    expect(warned.code).toBe(0);
    expect(warned.stderr).toMatch(/^Warning: .* was trained on models\/unknown, which is not here/);
  });

  it('refuses what would be lost: columns of samples, and a system message beside messages', async () => {
    const written = file('written.jsonl', { prompt: 'a' }, { prompt: 'b', prediction: 'of another model' });
    expect(await generate('--file', written, ...few)).toMatchObject({
      code: 1,
      stderr: `${written}, line 2 has a column 'prediction' already, which would be lost under that of the sample; rename it, or remove it`,
    });
    const messages = file('messages.jsonl', { messages: [{ role: 'user', content: 'a' }] });
    const asked = await generate('--file', messages, '--chat', '--system', 'Be short.', ...few);
    expect(asked).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('line 1: --system is for texts, and this prompt is a list of messages'),
    });
    const tools = file('tools.jsonl', { prompt: 'a', tools: [{ name: 'f' }] });
    expect((await generate('--file', tools, ...few)).stderr).toContain(
      'rows have tools (1), which is not read',
    );
  });

  it('refuses a row without the column and names its line', async () => {
    const path = file('in.jsonl', { prompt: 'a' }, { prompt: 5, answer: 'b' });
    const { code, stderr } = await generate('--file', path, ...few);
    expect([code, stderr]).toEqual([
      1,
      `${path}, line 2: column 'prompt' should hold a text or a list of messages with roles, and it holds something else; the columns are prompt, answer; name one with --column`,
    ]);
  });
});

describe('prompts', () => {
  const stdin = (text: string) => Readable.from([Buffer.from(text)]);

  it('from standard input are rows if it begins with an object, else one text', async () => {
    const rows = await promptsFrom('-', 'q', stdin(' {"q":"a"}\n{"q":"b","x":1}\n'));
    expect(rows.map(({ prompt, row }) => [prompt, row])).toEqual([
      ['a', { q: 'a' }],
      ['b', { q: 'b', x: 1 }],
    ]);
    const [one] = await promptsFrom('-', 'q', stdin('two\nlines\n'));
    expect(one?.prompt).toBe('two\nlines');
  });

  it('from a text file are its whole text', async () => {
    expect(await promptsFrom(file('a.txt', '{"not": rows}\n'), 'prompt', stdin(''))).toMatchObject([
      { prompt: '{"not": rows}' },
    ]);
  });

  it('from an empty file are refused', async () => {
    await expect(promptsFrom(file('a.txt', '\n'), 'prompt', stdin(''))).rejects.toThrow(
      'a.txt is empty; expected a text to go on from',
    );
    await expect(promptsFrom('-', 'prompt', stdin(''))).rejects.toThrow(
      'standard input is empty; expected a text to go on from',
    );
  });

  it('from an empty table are refused', async () => {
    await expect(promptsFrom(file('a.jsonl', ''), 'prompt', stdin(''))).rejects.toThrow(
      "a.jsonl has no rows; expected one JSON object a line with a column 'prompt'",
    );
  });
});

describe('steptrain chat', () => {
  async function talk(lines: readonly string[], options: Partial<ChatOptions> = {}, template = TEMPLATE) {
    const directory = await chatModel(template);
    const device = openDevice('cpu');
    const model = await loadModel(device, directory);
    const tokenizer = await loadTokenizer(directory);
    let said = '';
    const asked: string[] = [];
    await chat(
      { model, tokenizer, eosTokenIds: [END_OF_TURN] },
      {
        maxNewTokens: 6,
        ...options,
        lines: (async function* () {
          for (const line of lines) {
            asked.push(line);
            yield line;
          }
        })(),
        write: (text) => {
          said += text;
        },
      },
    );
    device.dispose();
    return { said, asked };
  }

  it('answers every line with the earlier turns as context', async () => {
    const { said } = await talk(['Hi', 'Hi']);
    const [first, second, end] = said.split(/(?<=\n)(?=[^\n])/);
    expect(end).toBeUndefined();
    expect(first).toBeTruthy();
    expect(second).not.toBe(first);
    expect((await talk(['Hi', '', '/reset', 'Hi'])).said).toBe(`${first}${first}`);
  });

  it('begins with the reasoning that the template opens', async () => {
    const opens = TEMPLATE.replace("<|turn|>assistant\\n'", "<|turn|>assistant\\n<think>\\n'");
    expect((await talk(['Hi'], {}, opens)).said).toMatch(/^<think>\n[\s\S]+\n$/);
    expect((await talk(['Hi'])).said).not.toContain('<think>');
  });

  it('lists its commands, and ends at /exit', async () => {
    const { said, asked } = await talk(['/what', '/exit', 'Hi']);
    expect(said).toBe('/reset begins anew, /exit ends\n');
    expect(asked).toEqual(['/what', '/exit']);
  });

  it('ends an interrupted reply and continues', async () => {
    let interrupt = (): boolean => false;
    let replies = 0;
    const { said } = await talk(['Hi', 'Ho'], {
      maxNewTokens: 300,
      ignoreEos: true,
      onInterrupt: (listener) => {
        interrupt = listener;
      },
      ready: () => {
        replies++;
        setTimeout(() => interrupt(), 30);
      },
    });
    expect(replies).toBe(3);
    expect(said.length).toBeLessThan(600);
  });

  it('reports a conversation longer than the model reads, and continues after /reset', async () => {
    const { said } = await talk(['x'.repeat(600), '/reset', 'Hi'], { maxNewTokens: 3 });
    expect(said).toMatch(
      /^the conversation has grown to \d+ tokens, and the model reads at most 512; \/reset begins anew\n./,
    );
  });

  it('refuses a model without a chat template', async () => {
    const { code, stderr } = await cli('chat', '--device', 'cpu', '--model', 'embedded');
    expect(code).toBe(1);
    expect(stderr).toBe(
      "the model's tokenizer has no chat template, so it was not made for conversations; use steptrain generate, or add chat_template.jinja to the model directory",
    );
  });
});
