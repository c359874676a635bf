// steptrain eval solve on the embedded model: the table, the files, going on, and what is refused.
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { wordProblems } from '../../../src/data/problems/generate.js';
import { completeRunConfig, formatRunConfig } from '../../../src/methods/config.js';
import { completeSaved } from '../../../src/methods/saved-models.js';
import { baseDirectory } from '../../../src/models/base.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { chatModel } from '../../generate/chat-model.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';
import { cli } from '../run-cli.js';

let folder: string;
beforeEach(() => {
  folder = temporaryDirectory();
});

const ROWS = [
  { problem: '12;-6;+7\n12-6=', answer: 6 },
  { problem: '6;+7\n6+7=', answer: '13' },
  { problem: '10;+7\n10+7=', answer: '17' },
  { problem: '25;+7\n25+7=', answer: '\\boxed{32}' },
];

function file(name: string, rows: readonly unknown[] = ROWS): string {
  const path = join(folder, name);
  writeFileSync(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  return path;
}

/** The problems alone as prompts, and short samples, unless `args` say otherwise. */
function solve(...args: readonly string[]) {
  const defaults = { '--template': '{problem}', '--max-new-tokens': '8' };
  const missing = Object.entries(defaults).filter(([option]) => !args.includes(option));
  const named = ['--model', '--help'].some((option) => args.includes(option));
  const model = named ? [] : ['--model', 'embedded'];
  return cli('eval', 'solve', '--device', 'cpu', ...model, ...missing.flat(), ...args);
}

const linesOf = (path: string) => readFileSync(path, 'utf8').trimEnd().split('\n');

describe('steptrain eval solve', () => {
  it('prints the figures and keeps every sample', async () => {
    const output = join(folder, 'out');
    const args = [file('rows.jsonl'), '-n', '4', '--output', output];
    const { code, stdout } = await solve(...args);
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^4 problems, 4 samples each +% +95 % CI\npass@1 .*\npass@2 .*\npass@4 .*\nmaj@4 .*\nunanswered .*\ntruncated .*\ntokens a sample .*\ntokens a problem .*\nintervals: /,
    );
    expect(stdout).toContain('\nanswers of embedded');
    const report = JSON.parse(readFileSync(join(output, 'solve.json'), 'utf8'));
    expect(report).toMatchObject({
      problems: 4,
      n: 4,
      settings: { template: '{problem}', chat: false, maxNewTokens: 8, temperature: 1 },
      about: { model: 'embedded', layouts: ['plain'] },
    });
    const solved = linesOf(join(output, 'problems.jsonl')).map((line) => JSON.parse(line));
    expect(solved.map(({ problem, answer }) => [problem, answer])).toEqual(
      ROWS.map(({ problem }, i) => [problem, ['6', '13', '17', '32'][i]]),
    );
    const samples = solved.flatMap(({ samples }) => samples);
    expect(report.metrics['pass@1'].value).toBe(samples.filter(({ right }) => right).length / 16);
    expect(samples[0]).toMatchObject({
      text: '6\n',
      tokens: 3,
      finish_reason: 'stop',
      answer: '6',
      right: true,
    });
    expect(linesOf(join(output, 'samples.jsonl'))).toHaveLength(16);
    // Again: nothing is drawn, and everything is the same.
    const journal = readFileSync(join(output, 'samples.jsonl'));
    expect((await solve(...args)).stdout).toBe(stdout);
    expect(readFileSync(join(output, 'samples.jsonl'))).toEqual(journal);
    expect(JSON.parse((await solve(...args, '--json')).stdout)).toEqual(report);
  });

  it('breaks the metrics down by a column', async () => {
    const data = file(
      'rows.jsonl',
      ROWS.map((row, i) => ({ ...row, kind: i === 0 ? 'minus' : 'plus' })),
    );
    const { groups, metrics } = JSON.parse((await solve(data, '-n', '2', '--by', 'kind', '--json')).stdout);
    expect(Object.entries(groups).map(([name, of]) => [name, (of as { problems: number }).problems])).toEqual(
      [
        ['minus', 1],
        ['plus', 3],
      ],
    );
    const [minus, plus] = ['minus', 'plus'].map((name) => groups[name].metrics['pass@1'].value);
    expect((minus + 3 * plus) / 4).toBeCloseTo(metrics['pass@1'].value);
    expect((await solve(data, '--by', 'kind')).stdout).toMatch(
      /\nby group, % +problems +pass@1.*\nminus +1 /,
    );
    expect((await solve(data, '--by', 'level')).stderr).toMatch(
      /line 1: column 'level' to group by is missing/,
    );
  });

  it('shows and compares what was solved', async () => {
    const [a, b] = [join(folder, 'a'), join(folder, 'b')];
    const data = file('rows.jsonl');
    const { stdout } = await solve(data, '-n', '4', '--output', a);
    await solve(data, '-n', '4', '--temperature', '0.2', '--output', b);
    expect((await cli('eval', a)).stdout).toBe(stdout);
    expect(JSON.parse((await cli('eval', 'show', a, '--json')).stdout)).toMatchObject({ problems: 4, n: 4 });
    const compared = await cli('eval', 'compare', a, b);
    expect(compared.stdout).toMatch(/^4 problems, % +A +B +B − A +95 % CI +p\npass@1 /);
    expect(compared.stdout).toContain('McNemar on problems: ');
    expect((await cli('eval', 'compare', a, folder)).stderr).toBe(
      `${a} holds solved problems and ${folder} does not; compare two evaluations of one kind`,
    );
    const run = join(folder, 'by-problems');
    mkdirSync(run);
    writeFileSync(join(run, 'eval.json'), '{"unit": "problems"}');
    expect((await cli('eval', 'compare', run, run)).stderr).toMatch(
      /by-problems solved problems and kept no problems\.jsonl of them; solve the same problems by both runs with: npx steptrain eval solve FILE/,
    );
    expect((await cli('eval', 'compare', a, join(folder, 'nowhere'))).stderr).toBe(
      `there is no ${join(folder, 'nowhere')}`,
    );
  });

  it('weighs samples by scores of another program', async () => {
    const output = join(folder, 'out');
    const data = file('rows.jsonl');
    await solve(data, '-n', '4', '--output', output);
    const solved = linesOf(join(output, 'problems.jsonl')).map((line) => JSON.parse(line));
    const scores = solved.flatMap(({ samples }, problem) =>
      samples.map(({ right }: { right: boolean }, sample: number) => ({
        problem,
        sample,
        rm: right ? 1 : 0,
      })),
    );
    const path = file('scores.jsonl', scores);
    const args = [data, '-n', '4', '--output', output, '--reward-model', path];
    const { stdout } = await solve(...args, '--score-column', 'rm', '--json');
    const { metrics, scorer } = JSON.parse(stdout);
    expect(metrics['best@4'].value).toBe(metrics['pass@4'].value);
    expect(scorer).toEqual({ name: `${path} (rm)`, aggregation: 'min' });
    expect((await solve(...args)).stderr).toContain("column 'score' should hold a number");
    expect((await solve(...args, '--search')).stderr).toMatch(
      /--search writes new solutions, which .*scores\.jsonl has no scores of/,
    );
  });

  it('searches with the exact judge of generated problems, and refuses a search without scores of steps', async () => {
    const rows = [...wordProblems({ seed: 2, samples: 2, part: 'test', levels: [1] })];
    const args = [
      file('words.jsonl', rows),
      '--model',
      'word-problems-misread',
      '-n',
      '4',
      '--template',
      '{problem}',
    ];
    const output = join(folder, 'out');
    const more = ['--max-new-tokens', '64', '--beams', '2', '--expansions', '2', '--output', output];
    const { stdout } = await solve(...args, '--search', '--reward-model', 'oracle', ...more);
    expect(stdout).toMatch(
      /\nsearch .*\nbest of as many tokens .*\nmajority of as many tokens .*\ntokens a search /,
    );
    expect(stdout).toMatch(/search: 2 beams, 2 continuations of each by one step/);
    const searched = linesOf(join(output, 'search.jsonl')).map((line) => JSON.parse(line));
    expect(searched).toHaveLength(2);
    expect(searched[0]).toHaveProperty('right');
    expect((await solve(...args, '--search')).stderr).toMatch(
      /--search goes by the scores of steps: name --reward-model/,
    );
    const greedy = [...args.slice(0, 3), '--search', '--reward-model', 'oracle'];
    expect((await solve(...greedy)).stderr).toMatch(
      /--search needs several samples, or a --temperature above 0/,
    );
  });

  it('asks the model of a run for scores and for verdicts on steps', async () => {
    const run = join(folder, 'run');
    mkdirSync(run);
    cpSync(baseDirectory('embedded'), join(run, 'model'), { recursive: true });
    const config = completeRunConfig({
      method: 'sft',
      model: { base: 'embedded' },
      data: { source: 'arithmetic' },
      prompt: { template: 'compact', pos_word: '1', neg_word: '0' },
      eval_verdicts: { threshold: 0.5 },
    });
    writeFileSync(join(run, 'config.yaml'), formatRunConfig(config, { head: 'A run' }));
    await completeSaved(run, config, byteTokenizer());
    const output = join(folder, 'out');
    const args = [file('rows.jsonl'), '-n', '4', '--output', output, '--reward-model', run, '--judge', run];
    const { code, stdout } = await solve(...args);
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^best@4 .*\nweighted@2 .*\nweighted@4 .*\nright with a wrong step .*\nwrong steps/m,
    );
    expect(stdout).toContain(`best and weighted: scores of ${run}, min of the steps`);
    const samples = linesOf(join(output, 'problems.jsonl')).flatMap((line) => JSON.parse(line).samples);
    for (const { text, right, score, steps } of samples) {
      expect(score).toBeGreaterThan(0);
      // One step, judged where the answer is right.
      expect(text.trim().split('\n')).toHaveLength(1);
      expect(steps).toEqual(right ? [score >= 0.5 ? 1 : 0] : undefined);
    }
  });

  it('judges the steps of generated problems exactly', async () => {
    const rows = [...wordProblems({ seed: 2, samples: 3, part: 'test', levels: [1] })];
    const data = file('generated.jsonl', rows);
    const output = join(folder, 'judged');
    const args = [
      data,
      '-n',
      '2',
      '--output',
      output,
      '--max-new-tokens',
      '8',
      '--judge',
      'oracle',
      '--json',
    ];
    const { code, stdout } = await solve(...args);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ judge: 'oracle', about: { layouts: ['word_problem'] } });
    const { stderr } = await solve(file('rows.jsonl'), '--judge', 'oracle');
    expect(stderr).toContain('the oracle judges generated problems alone, and problem 1 has no plan');
    const broken = file('broken.jsonl', [{ ...rows[0], ending: { kind: 'number', step: 9 } }]);
    expect((await solve(broken)).stderr).toContain(
      'no generated word problem; the ending is that of a step that the plan lacks',
    );
  });

  it('is greedy with one sample', async () => {
    const { stdout } = await solve(file('rows.jsonl'), '--json');
    const { settings, metrics } = JSON.parse(stdout);
    expect(settings.temperature).toBe(0);
    expect(Object.keys(metrics).slice(0, 2)).toEqual(['pass@1', 'unanswered']);
  });

  it('goes on wherever it was killed, with the same result bit for bit', async () => {
    const whole = join(folder, 'whole');
    const data = file('rows.jsonl');
    await solve(data, '-n', '6', '--output', whole);
    const samples = readFileSync(join(whole, 'samples.jsonl'));
    const torn = join(folder, 'torn');
    for (const share of [0, 0.03, 0.4, 0.77, 0.999]) {
      cpSync(whole, torn, { recursive: true });
      truncateSync(join(torn, 'samples.jsonl'), Math.floor(samples.length * share));
      // Another order of drawing changes nothing.
      const { code } = await solve(data, '-n', '6', '--max-rows', '2', '--output', torn);
      expect(code).toBe(0);
      for (const name of ['solve.json', 'problems.jsonl'])
        expect(readFileSync(join(torn, name)), `${name} at ${share}`).toEqual(
          readFileSync(join(whole, name)),
        );
      expect(linesOf(join(torn, 'samples.jsonl')).sort()).toEqual(
        linesOf(join(whole, 'samples.jsonl')).sort(),
      );
    }
  });

  it('draws only what is new where more samples or problems are asked for', async () => {
    const output = join(folder, 'out');
    const fresh = join(folder, 'fresh');
    const data = file('rows.jsonl');
    await solve(data, '-n', '2', '--max-problems', '2', '--output', output);
    const before = linesOf(join(output, 'samples.jsonl'));
    expect(before).toHaveLength(4);
    await solve(data, '-n', '5', '--output', output);
    await solve(data, '-n', '5', '--output', fresh);
    expect(linesOf(join(output, 'samples.jsonl')).slice(0, 4)).toEqual(before);
    expect(readFileSync(join(output, 'solve.json'))).toEqual(readFileSync(join(fresh, 'solve.json')));
    // Fewer: the others are left where they are.
    await solve(data, '-n', '2', '--max-samples', '2', '--output', output);
    expect(JSON.parse(readFileSync(join(output, 'solve.json'), 'utf8'))).toMatchObject({ problems: 2, n: 2 });
    expect(linesOf(join(output, 'samples.jsonl'))).toHaveLength(20);
  });

  it.each<[string, readonly string[], RegExp]>([
    ['a longer limit', ['--max-new-tokens', '9'], /maxNewTokens was 8 and is 9 now/],
    ['another temperature', ['--temperature', '0.5'], /temperature was 1 and is 0.5 now/],
    ['another seed', ['--seed', '1'], /seed was 0 and is 1 now/],
    ['another template', ['--template', '{problem} '], /template was "{problem}" and is "{problem} " now/],
    ['another stop text', ['--stop', 'x'], /stop was \[\] and is \["x"\] now/],
    ['another model', ['--dtype', 'bf16'], /model was "[0-9a-f]{16}" and is "[0-9a-f]{16}" now/],
  ])('refuses to go on with %s, naming the key', async (_, args, sentence) => {
    const output = join(folder, 'out');
    const data = file('rows.jsonl');
    await solve(data, '-n', '2', '--output', output);
    const before = readFileSync(join(output, 'samples.jsonl'));
    const { code, stderr } = await solve(data, '-n', '2', '--output', output, ...args);
    expect([code, stderr]).toEqual([1, expect.stringMatching(sentence)]);
    expect(readFileSync(join(output, 'samples.jsonl'))).toEqual(before);
  });

  it('refuses to go on with another problem, and with a damaged journal', async () => {
    const output = join(folder, 'out');
    await solve(file('rows.jsonl'), '-n', '2', '--output', output);
    const other = file('other.jsonl', [ROWS[0], { problem: '7;+7\n7+7=', answer: '14' }]);
    expect((await solve(other, '-n', '2', '--output', output)).stderr).toContain(
      'holds samples of problem 2 after another prompt',
    );
    const journal = join(output, 'samples.jsonl');
    const [first] = linesOf(journal);
    for (const [line, sentence] of [
      [first, 'line 9 is sample 0 of problem 0 a second time'],
      ['{"problem": 0}', 'line 9 is no sample of an evaluation (sample: '],
      ['{{{', 'line 9: the row is not JSON'],
    ]) {
      const whole = readFileSync(journal);
      appendFileSync(journal, `${line}\n`);
      expect((await solve(file('rows.jsonl'), '-n', '2', '--output', output)).stderr).toContain(sentence);
      writeFileSync(journal, whole);
    }
  });

  it('asks a chat model with its template, with examples as earlier turns', async () => {
    const model = await chatModel();
    const examples = file('examples.jsonl', [
      { question: 'One and one?', answer: '1+1=2\n#### 2' },
      { question: 'Two and two?', answer: '2+2=4\n#### 4' },
    ]);
    const data = file('rows.jsonl', [{ question: 'Three?', answer: '3' }]);
    const ask = async (...args: readonly string[]) => {
      const options = ['--device', 'cpu', '--model', model, '--max-new-tokens', '4', '--json'];
      const { stdout, stderr } = await cli('eval', 'solve', data, ...options, ...args);
      return stdout === '' ? stderr : JSON.parse(stdout).settings;
    };
    const chat = await ask();
    expect(chat).toMatchObject({ chat: true, template: expect.stringContaining('\\boxed{}') });
    const shown = await ask('--examples', examples, '--shots', '1');
    expect(shown).toMatchObject({ chat: true, examples: 1 });
    const plain = await ask('--no-chat');
    expect(plain).toMatchObject({
      chat: false,
      template: 'Question: {problem}\nAnswer:',
      stop: ['\nQuestion:'],
    });
    expect(new Set([chat, shown, plain].map((settings) => settings.first_prompt)).size).toBe(3);
    const long = await ask('--template', `{problem}${'x'.repeat(600)}`);
    expect(long).toMatchObject({ chat: true });
  });

  it('says of how many samples a scorer or judge says nothing', async () => {
    const labels = file('labels.jsonl', [{ prompt: 'another', completions: ['1+1=2'], labels: [1] }]);
    const output = join(folder, 'unread');
    const { stdout } = await solve(file('rows.jsonl'), '--judge', labels, '--output', output, '--json');
    const solved = readFileSync(join(output, 'problems.jsonl'), 'utf8');
    const right = solved.split('"right":true').length - 1;
    expect(right).toBeGreaterThan(1);
    expect(JSON.parse(stdout).warnings).toEqual([
      `the judge has no verdict on ${right} of ${right} right solutions: they are in no share of wrong steps`,
    ]);
    const scorer = await solve(file('rows.jsonl'), '--reward-model', labels, '--json');
    const answered = 4 - 4 * JSON.parse(scorer.stdout).metrics.unanswered.value;
    expect(JSON.parse(scorer.stdout).warnings).toEqual([
      `${answered} samples with an answer have no score: taken last, and no weight in votes`,
    ]);
  });

  it('says which problems stand among their own examples', async () => {
    const data = file('rows.jsonl', [
      { question: 'One and one?', answer: '1+1=2\n#### 2' },
      { question: 'Two and two?', answer: '2+2=4\n#### 4' },
    ]);
    const examples = file('examples.jsonl', [{ question: 'two  and TWO?', answer: '2+2=4\n#### 4' }]);
    const { stdout } = await solve(data, '--examples', examples, '--json');
    expect(JSON.parse(stdout).warnings).toEqual([
      '1 problem of 2 is among the examples in the prompt, with the solution; take examples from other problems',
    ]);
  });

  it('counts problems that do not fit into the model as wrong, and says so', async () => {
    const data = file('rows.jsonl', [...ROWS, { problem: '1+'.repeat(500), answer: '500' }]);
    const { stdout } = await solve(data);
    expect(stdout).toContain('warning: counted as wrong: 1 problem, too long for the model');
  });

  it.each<[string, readonly string[], string]>([
    ['no data', [], '1 argument is needed, found 0; the same command with --help names them'],
    ['a file that is not there', ['nope.jsonl'], 'there is no nope.jsonl (looked for from'],
    ['one column alone', ['rows.jsonl', '--problem', 'x'], '--problem needs --answer'],
    [
      'a template without a problem',
      ['rows.jsonl', '--template', 'solve!'],
      '--template expects a text with {problem}',
    ],
    ['no samples', ['rows.jsonl', '-n', '0'], '-n expects a whole number of at least 1, found 0'],
    ['beams without a search', ['rows.jsonl', '--beams', '2'], '--beams needs --search'],
    ['shots without examples', ['rows.jsonl', '--shots', '8'], '--shots needs --examples'],
    [
      'an aggregation without scores',
      ['rows.jsonl', '--aggregate', 'mean'],
      '--aggregate needs --reward-model',
    ],
    ['equal samples', ['rows.jsonl', '-n', '4', '--temperature', '0'], 'at --temperature 0 all 4 samples'],
    ['more than there are', ['rows.jsonl', '-n', '4', '--k', '5'], '--k expects whole numbers from 1 to 4'],
    [
      'a chat with a model for texts',
      ['rows.jsonl', '--model', 'embedded', '--chat'],
      'has no chat template',
    ],
    [
      'a system message without a chat',
      ['rows.jsonl', '--model', 'embedded', '--system', 'x'],
      'a system message needs a chat',
    ],
    [
      'examples without solutions',
      ['rows.jsonl', '--examples', 'rows.jsonl'],
      'example 1 has no solution to show',
    ],
  ])('refuses %s', async (_, args, sentence) => {
    file('rows.jsonl');
    const paths = args.map((arg) => (arg === 'rows.jsonl' ? join(folder, arg) : arg));
    const output = join(folder, 'out');
    const { code, stdout, stderr } = await cli(
      'eval',
      'solve',
      '--device',
      'cpu',
      ...paths,
      '--output',
      output,
    );
    expect(stderr.replaceAll(/\s+/g, ' ')).toContain(sentence);
    expect([code > 0, stdout, existsSync(join(output, 'samples.jsonl'))]).toEqual([true, '', false]);
  });
});
