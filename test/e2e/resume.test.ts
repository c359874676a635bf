// What `steptrain run --resume` says, refuses and changes; test/e2e/run.test.ts has the bits.
import { existsSync } from 'node:fs';
import {
  appendFile,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { compiled, metrics, steptrain, tensors } from './program.js';

let folder: string;
let finished: string;
const PRETRAIN = [
  ...[
    '--set',
    'data.arithmetic.samples=400',
    '--set',
    'pretrain.max_steps=4',
    '--set',
    'pretrain.save_steps=2',
  ],
  ...['--set', 'pretrain.tokens_per_step=512', '--set', 'model.base.init.num_hidden_layers=1'],
  ...['--set', 'run.device=cpu', '--set', 'run.logging_steps=1'],
];
const config = () => join(finished, 'config.yaml');

const restoring = async (path: string, change: () => Promise<void>, then: () => Promise<void>) => {
  const old = await readFile(path);
  try {
    await change();
    await then();
  } finally {
    await writeFile(path, old);
  }
};

describe.skipIf(!compiled)('a resumed run (needs dist/: npm run build)', () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'steptrain-resume-'));
    finished = join(folder, 'finished');
    const { code, err } = await steptrain(['run', 'pretrain_arithmetic', '--output', finished, ...PRETRAIN]);
    expect(err).toMatch(/Done after 4 steps/);
    expect(code).toBe(0);
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  test('that has finished says so and computes nothing', async () => {
    const weights = join(finished, 'model', 'model.safetensors');
    const [before, logged] = [await stat(weights), await metrics(finished)];
    for (const set of [[], ['--set', 'run.max_minutes=0']]) {
      const { code, err } = await steptrain(['run', '--resume', finished, ...set]);
      expect(err).toMatch(/finished has finished, after 4 steps; nothing was computed\n/);
      expect(err).toMatch(/to train on from it, in a new run: .* --set model\.base=\S*finished\/model\n/);
      expect(err).not.toMatch(/all stages are done/);
      expect(code).toBe(0);
    }
    expect((await stat(weights)).mtimeMs).toBe(before.mtimeMs);
    expect(await metrics(finished)).toEqual(logged);
  });

  test('writes its model again where that is missing, evaluates again, and ends', async () => {
    const weights = join(finished, 'model', 'model.safetensors');
    const before = tensors(weights);
    await rm(join(finished, 'model'), { recursive: true });
    const { code, err } = await steptrain(['run', '--resume', finished]);
    expect(err).toMatch(/from the checkpoint of step 4: all stages are done/);
    expect(err).toMatch(/Done after 4 steps/);
    expect(code).toBe(0);
    expect(tensors(weights)).toEqual(before);
    expect((await readdir(finished)).filter((name) => name.includes('partial'))).toEqual([]);
  });

  test('refuses a changed key of config.yaml and names it', async () => {
    const change = async () => {
      const text = await readFile(config(), 'utf8');
      await writeFile(config(), text.replace(/learning_rate: .*/, 'learning_rate: 0.5'));
    };
    await restoring(config(), change, async () => {
      const { code, err } = await steptrain(['run', '--resume', finished]);
      expect(err).toMatch(
        /began with another configuration: pretrain\.learning_rate is 0\.5 and was .*restore it, or start a new run.*run\.max_minutes/s,
      );
      expect(code).toBe(1);
    });
  });

  test('of an earlier version gets the default of a key that was added since, and keeps it', async () => {
    const inputs = join(finished, 'inputs.json');
    const older = async () => {
      const text = await readFile(config(), 'utf8');
      await writeFile(config(), text.replace(/^.*weight_decay: .*\n/m, ''));
      const { config: values, ...rest } = JSON.parse(await readFile(inputs, 'utf8'));
      delete values['pretrain.weight_decay'];
      await writeFile(inputs, JSON.stringify({ config: values, ...rest }));
    };
    const before = await readFile(inputs);
    await restoring(config(), older, async () => {
      const refused = await steptrain(['run', '--resume', finished, '--set', 'pretrain.weight_decay=0.7']);
      expect(refused.err).toMatch(/pretrain\.weight_decay is 0\.7 and was not there/);
      const { code, err } = await steptrain(['run', '--resume', finished]);
      expect(err).toMatch(
        /^added since this run began, with their defaults: pretrain\.weight_decay [\d.]+$/m,
      );
      expect(code).toBe(0);
      expect(await readFile(config(), 'utf8')).toMatch(/^ *weight_decay: /m);
      expect((await steptrain(['run', '--resume', finished])).err).not.toContain('added since');
    });
    await writeFile(inputs, before);
  });

  test('accepts changeable keys by --set, reports them and keeps them', async () => {
    await restoring(
      config(),
      async () => {},
      async () => {
        const { code, err } = await steptrain(['run', '--resume', finished, '--set', 'run.max_minutes=7']);
        expect(err).toMatch(/changed: run\.max_minutes is 7 and was 0/);
        expect(code).toBe(0);
        expect(await readFile(config(), 'utf8')).toMatch(/max_minutes: 7/);
        const refused = await steptrain(['run', '--resume', finished, '--set', 'run.seed=7']);
        expect(refused.err).toMatch(/run\.seed is 7 and was 42/);
        expect(refused.code).toBe(1);
      },
    );
    expect((await steptrain(['run', '--resume', finished, '--set', 'run.max_minutes=0'])).code).toBe(0);
  });

  test('that has finished refuses more steps, says how to train on, and stays as it is', async () => {
    const files = ['config.yaml', 'inputs.json'].map((name) => join(finished, name));
    const before = await Promise.all(files.map((file) => readFile(file, 'utf8')));
    const refusal =
      /finished has finished, after 4 steps, and trains no further, though pretrain\.max_steps is 9 and was 4; restore it, or train on in a new run: .* --set model\.base=\S*finished\/model\n/;
    for (const again of [1, 2]) {
      const { code, err } = await steptrain(['run', '--resume', finished, '--set', 'pretrain.max_steps=9']);
      expect([again, err]).toEqual([again, expect.stringMatching(refusal)]);
      expect(code).toBe(1);
    }
    expect(await Promise.all(files.map((file) => readFile(file, 'utf8')))).toEqual(before);
    // A file that was edited says the same.
    const edit = () =>
      writeFile(
        config(),
        (before[0] as string).replace(/(pretrain:\n(?: .*\n)*? *)max_steps: 4/, '$1max_steps: 9'),
      );
    await restoring(config(), edit, async () => {
      for (const again of [1, 2]) {
        const { code, err } = await steptrain(['run', '--resume', finished]);
        expect([again, err]).toEqual([again, expect.stringMatching(refusal)]);
        expect(code).toBe(1);
      }
    });
    expect((await steptrain(['run', '--resume', finished])).code).toBe(0);
  });

  test('names a damaged checkpoint, and refuses if all are damaged', async () => {
    const file = (step: number) => join(finished, 'checkpoints', `step-${step}`, 'trainable.safetensors');
    await restoring(
      file(4),
      () => truncate(file(4), 100),
      async () => {
        const { code, err } = await steptrain(['run', '--resume', finished]);
        expect(err).toMatch(
          /checkpoint of step 4 is damaged \(trainable\.safetensors has 100 bytes instead of \d+\)/,
        );
        expect(err).toMatch(/from the checkpoint of step 2: pretrain step 2/);
        expect(code).toBe(0);
      },
    );
    const steps = await readdir(join(finished, 'checkpoints'));
    const all = steps.map((name) => join(finished, 'checkpoints', name, 'state.json'));
    for (const path of all) await appendFile(path, ' ');
    const logged = (await metrics(finished)).length;
    const { code, err } = await steptrain(['run', '--resume', finished]);
    expect(err).toMatch(/every checkpoint is damaged: step 4 \(state\.json has \d+ bytes instead of \d+\)/);
    expect(code).toBe(1);
    expect((await metrics(finished)).length).toBe(logged);
  });

  test('refuses changed data and names the file, but accepts moved data', async () => {
    const data = join(folder, 'steps.jsonl');
    const rows = Array.from({ length: 40 }, (_, i) => {
      const steps = [0, 1].map((j) => ({ text: `${i}+${j}=${i + j}`, label: (i + j) % 2 }));
      return JSON.stringify({ problem: `Begin with ${i} and add.`, steps });
    });
    await writeFile(data, `${rows.join('\n')}\n`);
    const run = join(folder, 'own-data');
    const settings = ['data.source=auto', `data.train=${data}`, 'run.device=cpu'];
    const set = settings.flatMap((setting) => ['--set', setting]);
    const begun = await steptrain(['run', 'quickstart_sft', '--output', run, ...set]);
    expect(begun.err).toMatch(/Done after 1 step;/);
    await restoring(
      data,
      () => appendFile(data, `${rows[0]}\n`),
      async () => {
        const { code, err } = await steptrain(['run', '--resume', run]);
        expect(err).toMatch(/began with other content of data\.train: steps\.jsonl was changed; restore it/);
        expect(code).toBe(1);
      },
    );
    const moved = join(folder, 'moved');
    await mkdir(moved);
    await rename(data, join(moved, 'steps.jsonl'));
    const lost = await steptrain(['run', '--resume', run]);
    expect(lost.err).toMatch(/data\.train leads nowhere/);
    expect(lost.code).not.toBe(0);
    const found = ['--set', `data.train=${join(moved, 'steps.jsonl')}`];
    const { code, err } = await steptrain(['run', '--resume', run, ...found]);
    expect(err).toMatch(/all stages are done/);
    expect(code).toBe(0);
  });

  test('finds the tokenizer of the package again', async () => {
    const run = join(folder, 'word-problems');
    const few = ['data.word_problems.samples=200', 'pretrain.max_steps=2', 'pretrain.tokens_per_step=2048'];
    const set = few.flatMap((setting) => ['--set', setting]);
    const begun = await steptrain(['run', 'pretrain_word_problems', '--output', run, ...set]);
    expect(begun.err).toMatch(/Done after 2 steps/);
    await rm(join(run, 'model'), { recursive: true });
    const { code, err } = await steptrain(['run', '--resume', run]);
    expect(err).toMatch(/all stages are done/);
    expect(code).toBe(0);
    const model = ['--model', join(run, 'model'), '--device', 'cpu', '--max-new-tokens', '4'];
    expect((await steptrain(['generate', 'Tom has 3 apples.', ...model])).code).toBe(0);
  });

  test('has no directory if the run failed before its first step', async () => {
    const run = join(folder, 'refused');
    const words = ['--set', 'prompt.pos_word=a', '--set', 'prompt.neg_word=a'];
    const bad = join(folder, 'bad.jsonl');
    await writeFile(bad, '{"problem": 1}\n');
    const { code } = await steptrain(['run', 'quickstart_sft', '--output', run, ...words]);
    expect(code).not.toBe(0);
    expect(existsSync(run)).toBe(false);
    const data = ['--set', 'data.source=auto', '--set', `data.train=${bad}`];
    expect((await steptrain(['run', 'quickstart_sft', '--output', run, ...data])).code).not.toBe(0);
    expect(existsSync(run)).toBe(false);
  });
});
