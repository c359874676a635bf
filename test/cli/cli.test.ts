import { readFileSync } from 'node:fs';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { commandLine } from '../../src/cli/cli.js';
import { describeError, exitCodeOf, Interrupted } from '../../src/cli/line/error.js';
import { ConfigError } from '../../src/config/error.js';
import { completeRunConfig, parseRunConfig } from '../../src/methods/config.js';
import { cli } from './run-cli.js';

const { commandPaths, commandReference } = await import(
  new URL('../../scripts/docs/command-reference.mjs', import.meta.url).href
);

afterEach(() => {
  delete process.env.STEPTRAIN_STACKS;
});

describe('the command line', () => {
  it('prints its version', async () => {
    const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
    expect(await cli('--version')).toEqual({ code: 0, stdout: version, stderr: '' });
  });

  it('lists its commands', async () => {
    const { code, stdout } = await cli('--help');
    expect(code).toBe(0);
    for (const command of [
      'run [recipe]',
      'data',
      'eval',
      'generate [prompts..]',
      'chat',
      'doctor',
      'build',
      'sweep <file>',
      'report <runs..>',
      'ui [folder]',
    ]) {
      expect(stdout).toContain(`steptrain ${command}`);
    }
  });

  it('explains every command with an example', async () => {
    const paths = await commandPaths(commandLine, []);
    expect(paths.length).toBeGreaterThan(30);
    // The examples of a command show its options where a list shows subcommands.
    expect(paths.flat().filter((name: string) => name.startsWith('-'))).toEqual([]);
    for (const path of paths) {
      const { code, stdout } = await cli(...path, '--help');
      expect(code).toBe(0);
      expect(stdout, path.join(' ')).toMatch(/Examples:\n +steptrain /);
    }
  });

  it('has its reference in docs', async () => {
    const page = readFileSync('docs/reference/commands.md', 'utf8');
    expect(page, 'run: npm run build && node scripts/config-docs.mjs').toBe(
      await commandReference(commandLine),
    );
  });

  it('completes commands', async () => {
    const { stdout } = await cli('completion');
    expect(stdout).toContain('steptrain completion');
  });

  it.each([
    [[], 'name a command; npx steptrain --help lists them'],
    [['judge'], 'name the file to judge, as in npx steptrain judge problem.txt'],
    [['rum'], 'there is no command rum; did you mean run? npx steptrain --help lists them'],
    [['tran'], 'there is no command tran; did you mean train? npx steptrain --help lists them'],
    [
      ['Evaluate', 'runs/x'],
      'there is no command Evaluate; did you mean eval? npx steptrain --help lists them',
    ],
    [
      ['push', 'runs/x', 'me/y'],
      'there is no command push; did you mean hub push? npx steptrain --help lists them',
    ],
    [
      ['train', 'nope'],
      'there is no recipe nope; name a YAML file, or one of those that npx steptrain recipes ls lists',
    ],
    [
      ['inspect', 'runs'],
      'inspect has no command runs; did you mean run? Known are model, adapter, checkpoint, run and data',
    ],
    [
      ['inspect', 'base.Q4_0.gguf'],
      'inspect needs to know what a file is; did you mean npx steptrain inspect model base.Q4_0.gguf?',
    ],
    [
      ['inspect', 'foo', 'x'],
      'inspect has no command foo; known are model, adapter, checkpoint, run and data',
    ],
    [
      ['data', 'foo'],
      'data has no command foo; known are stats, preview, convert, segment, problems, plant, s3c and rationales',
    ],
    [['recipes', 'foo'], 'recipes has no command foo; known are ls, cat and cp'],
    [['config', 'foo'], 'config has no command foo; known are show, diff and schema'],
    [['hub', 'foo'], 'hub has no command foo; known is push'],
    [
      ['eval', 'slove'],
      'there is no directory slove, and eval has no command slove; did you mean solve? Known are show, correction, solve, s3c, reward-model, calibrate, cascade and compare',
    ],
    [
      ['eval', 'show', 'gone'],
      'there is no gone; name the directory of a finished run, or an --output of eval correction or solve',
    ],
    [['inspect', 'run', 'x', '--bogus'], 'there is no option --bogus'],
    [
      ['run', '--bogus'],
      'there is no option --bogus; keys of the recipe are given by --set, as in --set data.train=FILE',
    ],
    [['eval', 'correction', 'runs/x', '-n', '20'], 'there is no option -n; did you mean --max-samples?'],
    [['run', '--resme', 'x'], 'there is no option --resme; did you mean --resume?'],
    [
      ['run', 'quickstart', 'more'],
      'there is no argument more here; data are named by --set data.train=FILE',
    ],
    [
      ['eval', 'corection', 'runs/x'],
      'eval has no command corection; did you mean correction? Known are show, correction, solve, s3c, reward-model, calibrate, cascade and compare',
    ],
    [['run', '--set'], '--set needs a value'],
    [['run', 'x', '--resume', 'y'], '--resume and recipe exclude each other; give one of them'],
    [['data'], 'name stats, preview, convert, segment, problems, plant, s3c or rationales'],
    [
      ['eval'],
      'name a run directory, or one of show, correction, solve, s3c, reward-model, calibrate, cascade and compare',
    ],
    [['data', 'preview', '--part', 'tset'], '--part expects train, validation or test, found tset'],
    [['data', 'problems', 'x.jsonl', '--level', '9'], '--level expects 1, 2, 3 or 4, found 9'],
    [
      ['data', 'problems', 'x.jsonl', '--count', '-5'],
      '--count expects a whole number of at least 0, found -5',
    ],
    [['data', 'problems', 'x.jsonl', '--seed', 'soon'], '--seed expects a number, found soon'],
    [
      ['grade', 'x.jsonl', '--expect', 'any', '--expect', 'choice'],
      '--expect is given 2 times, with any and choice; give it once',
    ],
    [
      ['score', 'x.jsonl', '--model', 'embedded', '--device', 'cpu'],
      'embedded judges no steps; expected what a run has trained to judge, a published reward model, a classification model, or word-problems-judge; any other language model judges by the prompt that a program gives it (options.prompt of judgeSteps), or after a run has trained it: npx steptrain run my_steps --set model.base=MODEL',
    ],
    [['data', 'preview', '--count', '0'], '--count expects a whole number of at least 1, found 0'],
    [['data', 'preview', '--count', 'x'], '--count expects a number, found x'],
    [
      ['run', 'quikstart'],
      'there is no recipe quikstart; did you mean quickstart? Name a YAML file, or one of those that npx steptrain recipes ls lists',
    ],
    [['run', 'stepamc_few_labels'], 'stepamc_few_labels is a sweep: npx steptrain sweep stepamc_few_labels'],
    [['sweep', 'my_steps.yaml'], 'my_steps.yaml is a recipe: npx steptrain run my_steps.yaml'],
    [
      ['run', 'nope'],
      'there is no recipe nope; name a YAML file, or one of those that npx steptrain recipes ls lists',
    ],
    [
      ['sweep', 'nope.yaml'],
      'there is no sweep nope.yaml; name a YAML file, or one of those that npx steptrain recipes ls sweeps lists',
    ],
    [
      ['sweep', 'stepamc_arithmetc', '--dry-run'],
      'there is no sweep stepamc_arithmetc; did you mean stepamc_arithmetic? Name a YAML file, or one of those that npx steptrain recipes ls sweeps lists',
    ],
    [['run', '--set', 'sft.lr=1'], '--set sft.lr=1: unknown key "lr" in sft; did you mean "learning_rate"?'],
    [
      ['run', '--set', 'lr=1'],
      '--set lr=1: unknown key "lr"; did you mean "sft.learning_rate" or "reward_network.learning_rate" or "verdict_ppo.learning_rate" or "optimizer.learning_rate"?',
    ],
    [
      ['run', 'quickstart_prm', '--set', 'epochs=3'],
      '--set epochs=3: unknown key "epochs"; did you mean "reward_model.num_train_epochs" or "optimizer.num_train_epochs"?',
    ],
    [['run', '--set', 'sft.lr'], '--set sft.lr: expected section.key=value, such as sft.learning_rate=1e-4'],
    [['judge', 'READM.md'], 'cannot read READM.md: no such file or directory; did you mean README.md?'],
  ])('reports bad usage %j in one sentence with exit code 1', async (args, sentence) => {
    expect(await cli(...args)).toEqual({ code: 1, stdout: '', stderr: sentence });
  });

  it('reports a failure in one sentence with exit code 1, and its stack on request', async () => {
    const failed = await cli('generate', 'x', '--model', '/nowhere');
    expect(failed).toEqual({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(/^--model: there is no \/nowhere /),
    });
    process.env.STEPTRAIN_STACKS = '1';
    const { stderr } = await cli('generate', 'x', '--model', '/nowhere');
    expect(stderr.split('\n')[0]).toBe(failed.stderr);
    expect(stderr).toMatch(/\n +at resolveModel /);
  });
});

describe('errors', () => {
  it('have exit codes', () => {
    expect(exitCodeOf(new ConfigError('x'))).toBe(1);
    expect(exitCodeOf(new Error('x'))).toBe(2);
    expect(exitCodeOf(new Interrupted('x'))).toBe(130);
  });

  it('say so if they are unexpected', () => {
    const unforeseen = new TypeError("Cannot read properties of undefined (reading 'x')");
    expect(describeError(unforeseen, { stacks: false })).toMatch(
      /^Cannot read.*\n +at .*This is a defect of steptrain; please report it/s,
    );
    expect(describeError('text', { stacks: false })).toBe('steptrain failed: text');
  });
});

describe('steptrain run --dry-run', () => {
  const few = ['run', 'quickstart_sft', '--dry-run', '--set', 'data.arithmetic.samples=50'];

  it('prints what it would do, and with --full the complete configuration below it; writes nothing', async () => {
    const short = await cli(...few);
    expect(short.stdout).toMatch(/^data:\n {2}train +\d+ solutions/);
    expect(short.stdout).toMatch(
      /\n--full prints .*\ntime: about (\d+m)?\d+s by steps measured just now(\nthe machine was busy .*)?$/,
    );
    // A plan for another machine takes no steps.
    const small = ['--set', 'data.word_problems.samples=60', '--plan-for', '80GiB'];
    const { code, stdout } = await cli(
      ...['run', '--dry-run', '--full', ...small],
      ...['--set', 'lora.r=3', '--set', 'run.seed=7'],
    );
    expect(code).toBe(0);
    const { config } = parseRunConfig(stdout, { name: 'out' });
    expect(config).toMatchObject({
      method: 'stepamc',
      lora: { r: 3 },
      run: { seed: 7 },
      model: { base: 'word-problems-attempts' },
    });
    expect(completeRunConfig(config)).toEqual(config);
    // Above it, as comments: the counts of the data and the memory plan by role.
    expect(stdout).toMatch(/^# {3}train +\d+ solutions, \d+ right and \d+ wrong steps$/m);
    for (const role of ['base', 'policy', 'reference', 'reward', 'activations', 'peak'])
      expect(stdout).toMatch(new RegExp(`^# {3}${role} +[\\d.]+ [MG]iB`, 'm'));
  });

  const tiny = ['--dry-run', '--full', '--plan-for', '1GiB', '--set', 'data.arithmetic.samples=50'];

  it('finds a recipe of the package by name, with or without folder and extension', async () => {
    for (const name of [
      'pretrain_arithmetic',
      'pretrain_arithmetic.yaml',
      'recipes/pretrain_arithmetic.yaml',
    ]) {
      const { stdout } = await cli('run', name, ...tiny);
      expect(stdout).toContain('method: pretrain');
    }
    // A mistyped folder of the user's own is not answered with the recipe of the package.
    expect(await cli('run', 'configs/quickstart.yaml', '--dry-run')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('there is no recipe configs/quickstart.yaml; did you mean quickstart?'),
    });
  });

  it('refuses what the run would refuse: words that cannot be told apart, a base without weights', async () => {
    const words = await cli(...few, '--set', 'prompt.pos_word=yes', '--set', 'prompt.neg_word=yesno');
    expect(words).toMatchObject({ code: 1, stderr: expect.stringContaining('choose words that differ') });
    const base = await mkdtemp(join(tmpdir(), 'steptrain-base-'));
    try {
      for (const name of ['config.json', 'generation_config.json'])
        await cp(`assets/arithmetic-base/${name}`, join(base, name)).catch(() => {});
      const { code, stderr } = await cli(
        ...few,
        '--set',
        `model.base=${base}`,
        '--set',
        'model.tokenizer=bytes',
      );
      expect(stderr).toMatch(
        /expected model\.safetensors, model\.safetensors\.index\.json or pytorch_model\.bin, found none/,
      );
      expect(code).toBe(1);
    } finally {
      await rm(base, { recursive: true });
    }
  });

  it('plans for another machine, and takes data without a test part', async () => {
    const { stdout } = await cli(...few, '--plan-for', '80GiB', '--set', 'data.split=[1,0,0]');
    expect(stdout).toMatch(
      /^memory, planned for 80\.0 GiB \(at most 72\.0 are planned, run\.memory_fraction 0\.9\):$/m,
    );
    expect(stdout).toMatch(/^ {2}test +0 solutions/m);
    expect(await cli(...few, '--plan-for', 'much')).toMatchObject({
      code: 1,
      stderr: '--plan-for expects an amount of memory such as 80GiB or 8x80GiB, found much',
    });
  });

  it('plans for each of several processes, which divide the moments of AdamW with run.zero', async () => {
    const init = ['run', 'pretrain_arithmetic', '--dry-run', '--set', 'data.arithmetic.samples=50'];
    const plan = async (...more: string[]) => (await cli(...init, '--plan-for', ...more)).stdout;
    const whole = await plan('8x80GiB');
    expect(whole).toMatch(/^memory, planned for each of 8 processes with 80\.0 GiB/m);
    expect(whole).toMatch(/parameters with gradients and AdamW moments, f32$/m);
    expect(whole).toMatch(/^ {2}run\.zero: 1 would divide the AdamW moments by 8$/m);
    const divided = await plan('8x80GiB', '--set', 'run.zero=1');
    expect(divided).toMatch(/parameters with gradients and 1\/8 of the AdamW moments, f32$/m);
    expect(divided).not.toMatch(/would divide/);
    const released = await plan('8x80GiB', '--set', 'run.zero=2');
    expect(released).toMatch(
      /parameters with gradients of a layer and 1\/8 of all, and 1\/8 of the AdamW moments, f32$/m,
    );
    // Shards that are more than the processes hold gradients whole.
    const whole2 = await plan('8x80GiB', '--set', 'run.zero=2', '--set', 'run.shards=16');
    expect(whole2).toMatch(/parameters with gradients and 1\/8 of the AdamW moments/);
  });

  it('exits with 1 where the run would fail, after all that can be told', async () => {
    const small = await cli(...few, '--plan-for', '1MB');
    expect(small).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^the run would fail: the run needs/m),
    });
    expect(small.stdout).toMatch(/^it does not fit: the run needs/m);
    expect(small.stdout).toMatch(/^steps:$/m);

    const none = ['--set', 'model.tokenizer=tokenizers/gone'];
    const init = ['run', 'pretrain_arithmetic', '--dry-run', '--set', 'data.arithmetic.samples=50'];
    const { code, stderr } = await cli(...init, ...none);
    expect(stderr).toMatch(/tokenizers\/gone/);
    expect(code).toBe(1);
  });

  it('does not take the recipe as a value of --set', async () => {
    const { stdout } = await cli('run', '--set', 'run.seed=1', 'pretrain_arithmetic', ...tiny);
    expect(stdout).toContain('method: pretrain');
  });
});

describe('steptrain doctor', () => {
  it('prints the machine and the addon, and tests every instruction set', async () => {
    const { code, stdout } = await cli('doctor');
    expect(code).toBe(0);
    expect(stdout).toMatch(/^steptrain +\d/);
    expect(stdout).toMatch(/^runtime +Node \d+\.\d+/m);
    expect(stdout).toMatch(/^system .*glibc/m);
    expect(stdout).toMatch(/^addon +\/.*steptrain\.node, [\d.]+ MB\ncpu +\w+ kernels .*, \d+ threads\ncuda/m);
    expect(stdout).toMatch(/^self-test +portable passed in/m);
  });

  it('shows settings, and no secrets', async () => {
    process.env.STEPTRAIN_SOMETHING = 'shown';
    process.env.STEPTRAIN_API_KEY = 'hidden';
    try {
      const { stdout } = await cli('doctor', '--no-self-test');
      expect(stdout).toContain('STEPTRAIN_SOMETHING=shown');
      expect(stdout).not.toContain('hidden');
      expect(stdout).not.toContain('self-test');
    } finally {
      delete process.env.STEPTRAIN_SOMETHING;
      delete process.env.STEPTRAIN_API_KEY;
    }
  });
});
