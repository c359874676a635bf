// Runs that begin with an adapter: what they begin with, in every role, and what they refuse.
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { completeRunConfig, parseRunConfig } from '../../../src/methods/config.js';
import type { PpoRunConfig } from '../../../src/methods/ppo/config.js';
import { createPpoRoles } from '../../../src/methods/ppo/roles.js';
import { resume, train } from '../../../src/methods/run.js';
import type { SftRunConfig } from '../../../src/methods/sft/config.js';
import { createStepAmcRoles } from '../../../src/methods/stepamc/roles.js';
import type { RunConfigInput } from '../../../src/methods/table.js';
import type { Adapter } from '../../../src/models/adapter.js';
import { baseDirectory } from '../../../src/models/base.js';
import { byteTokenizer } from '../../../src/tokenizer/byte.js';
import { checkAdapter } from '../../../src/train/plan/adapter-start.js';
import { describeRun } from '../../../src/train/plan/dry-run.js';
import { createTrainee } from '../../../src/train/roles/trainee.js';
import { metrics, tensors } from '../../e2e/program.js';
import { TINY } from '../../methods/reward/tiny-model.js';
import { goldenDirectory, tensorsIn } from '../../models/golden.js';
import { openTest } from '../../ops/devices.js';
import { TINY_LORA, tinyRounds, tinySft } from '../tiny-sft.js';

const device = openTest();
afterAll(() => device.dispose());

const folder = mkdtempSync(join(tmpdir(), 'steptrain-adapter-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
/** Of rank 2 on some layers, dropout 0.05 and α 4. */
const first = join(folder, 'first');
const continued = (more: Record<string, object | string> = {}) =>
  tinySft({ model: { adapter: first }, ...more });

beforeAll(async () => {
  vi.spyOn(console, 'error').mockImplementation(() => {});
  await train(tinySft({ lora: TINY_LORA }), { output: first });
});

/** A copy of the adapter with other keys in its configuration. */
function changed(name: string, keys: object, { card = false } = {}): string {
  const copy = join(folder, name);
  cpSync(join(first, 'adapter'), copy, { recursive: true });
  const path = join(copy, 'adapter_config.json');
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, 'utf8')), ...keys }));
  if (!card) rmSync(join(copy, 'steptrain.json'));
  return copy;
}

/** Whether a role holds the values of the first adapter, bit by bit. */
async function expectFirst(adapter: Adapter | undefined, named: string): Promise<void> {
  const stored = tensorsIn(join(first, 'adapter', 'adapter_model.safetensors'));
  const own = new Map([...(adapter?.all() ?? [])].map(({ name, value }) => [name, value]));
  for (const [name, values] of stored)
    expect(await own.get(name)?.readFloats(), `${named} ${name}`).toEqual(values);
}

describe('model.adapter', () => {
  it('fills in the section lora, of which dropout may differ', async () => {
    const config = completeRunConfig(continued()) as SftRunConfig;
    expect(config.lora).toMatchObject({
      ...TINY_LORA,
      lora_dropout: 0.05,
      use_rslora: false,
      rank_pattern: {},
    });
    const other = completeRunConfig(continued({ lora: { r: 2, lora_dropout: 0.5 } })) as SftRunConfig;
    expect(other.lora).toMatchObject({ ...TINY_LORA, lora_dropout: 0.5 });
    await checkAdapter({ ...other, model: { ...other.model, adapter: join(first, 'adapter') } });
  });

  it('begins with the bits of the adapter, and learns nothing at a learning rate of nothing', async () => {
    const { directory } = await train(continued({ sft: { max_steps: 1, learning_rate: 1e-30 } }), {
      output: join(folder, 'nothing'),
    });
    const [before, after] = [first, directory].map((run) =>
      tensors(join(run, 'adapter', 'adapter_model.safetensors')),
    );
    expect(after).toEqual(before);
    const [ended, begun] = await Promise.all([first, directory].map(metrics));
    const test = (lines: Record<string, unknown>[]) => lines.find(({ phase }) => phase === 'test');
    const { step: _, ...left } = test(ended as never) as Record<string, unknown>;
    expect(test(begun as never)).toMatchObject(left);
    // The same verdicts on held-out steps; another loss of the same first batch than the base had.
    const last = (lines: Record<string, unknown>[]) => lines.findLast(({ phase }) => phase === 'sft')?.auc;
    expect(last(begun as never)).toBeGreaterThan(0);
    expect(last(begun as never)).toBe(last(ended as never));
    expect(begun?.[0]?.loss).not.toBe(ended?.[0]?.loss);
  });

  it('goes on training from there, and says the same when it is stopped and resumed', async () => {
    const whole = await train(continued(), { output: join(folder, 'second') });
    const stop = new AbortController();
    const stopped = await train(continued(), {
      output: join(folder, 'stopped'),
      signal: stop.signal,
      onStep: ({ step }) => {
        if (step === 2) stop.abort();
      },
    });
    expect(stopped.status).toBe('interrupted');
    const adapter = join(folder, 'first', 'adapter');
    const weights = join(adapter, 'adapter_model.safetensors');
    copyFileSync(weights, join(folder, 'kept'));
    const bytes = readFileSync(weights);
    bytes[bytes.length - 1] = (bytes[bytes.length - 1] as number) ^ 1;
    writeFileSync(weights, bytes);
    await expect(resume(stopped.directory)).rejects.toThrow(
      /other content of model\.adapter: adapter_model\.safetensors was changed/,
    );
    renameSync(join(folder, 'kept'), weights);
    await resume(stopped.directory);
    const [one, other, begun] = [whole.directory, stopped.directory, first].map((run) =>
      tensors(join(run, 'adapter', 'adapter_model.safetensors')),
    );
    expect(other).toEqual(one);
    expect(one).not.toEqual(begun);
    // What it ended with needs no other adapter, and can be read where the first is gone.
    const { config } = parseRunConfig(
      readFileSync(join(whole.directory, 'config.yaml'), 'utf8').replaceAll(first, '/nowhere'),
      { name: 'config.yaml' },
    );
    expect(config).toMatchObject({ lora: TINY_LORA, model: { adapter: '/nowhere/adapter' } });
  });

  it('takes adapters of PEFT by layers and patterns', async () => {
    const names = [...tensorsIn(join(first, 'adapter', 'adapter_model.safetensors')).keys()].filter((name) =>
      name.includes('lora_A'),
    );
    const adapter = changed('pattern', {
      target_modules: '.*(q_proj|down_proj)',
      base_model_name_or_path: 'me/x',
    });
    const config = completeRunConfig(tinySft({ model: { adapter } })) as SftRunConfig;
    expect(config.lora).toMatchObject({ r: 2 });
    expect((config.lora as { target_modules: string[] }).target_modules).toHaveLength(names.length);
    await checkAdapter(config);
    const { model, lora } = config;
    const trainee = await createTrainee(device, {
      ...{ model, lora, tokenizer: byteTokenizer(), seed: 1, gradientCheckpointing: false },
    });
    await expectFirst(trainee.role.adapter, 'policy');
    trainee.dispose();
  });

  it('is counted by the dry run', async () => {
    const { methodOf } = await import('../../../src/methods/table.js');
    const lines = async (input: RunConfigInput) => {
      const config = completeRunConfig(input);
      const row = methodOf(config);
      return (await describeRun({ ...row, ...(await row.load()) }, config)).lines.join('\n');
    };
    const stepamc = { method: 'stepamc', model: { adapter: join(first, 'adapter') } };
    expect(await lines(continued(stepamc))).toMatch(/base adapter .*frozen adapter parameters/);
    expect(await lines(continued({ ...stepamc, model: {}, lora: TINY_LORA }))).not.toMatch(/base adapter/);
  });

  it('is what every role of StepAMC begins with, the base of its KL among them', async () => {
    const { model, lora } = completeRunConfig(
      tinySft({ method: 'stepamc', model: { adapter: join(first, 'adapter') } }),
    ) as SftRunConfig;
    const options = { model, lora, seed: 1, gradientCheckpointing: false };
    const roles = await createStepAmcRoles(device, options);
    for (const name of ['policy', 'reference', 'base', 'reward'] as const)
      await expectFirst(roles[name]?.adapter, name);
    roles.dispose();
  });

  it('is the warm-up of StepAMC where it trains none, and judges by itself where nothing is trained', async () => {
    const none = { max_steps: 1, tokens_per_step: 512, micro_batch_tokens: 512, learning_rate: 1e-30 };
    const run = async (name: string, more: Record<string, object | string>) => {
      const sft = { num_train_epochs: 0, micro_batch_tokens: 512 };
      const input = continued({ method: name, ...more, sft } as never);
      const { directory } = await train({ ...input, sft } as RunConfigInput, {
        output: join(folder, `warm-${name}`),
      });
      const report = JSON.parse(readFileSync(join(directory, 'eval.json'), 'utf8'));
      const phases = new Set((await metrics(directory)).map(({ phase }) => phase));
      return { directory, report, phases: [...phases] };
    };
    const begun = JSON.parse(readFileSync(join(first, 'eval.json'), 'utf8'));
    const asItIs = await run('sft', {});
    expect(asItIs.report.metrics).toEqual(begun.metrics);
    expect(asItIs.report.data.trained_tokens).toBe(0);
    expect(asItIs.phases).toEqual(['test']);
    const [before, after] = [first, asItIs.directory].map((dir) =>
      tensors(join(dir, 'adapter', 'adapter_model.safetensors')),
    );
    expect(after).toEqual(before);
    const whole = await run('stepamc', {
      reward_network: { ...none, init: 'sft' },
      verdict_ppo: { learning_rate: 1e-30, max_iterations: 1, micro_batch_tokens: 512 },
    });
    expect(whole.phases).toEqual(['reward_network', 'ppo', 'test']);
    expect(whole.report.baselines.sft).toEqual(begun.metrics);
    // It would be the same model once more.
    expect(whole.report.baselines).not.toHaveProperty('base');
  });

  it.each(['adapter', 'trunk'])(
    'is what policy, reference and critic of PPO begin with: %s',
    async (critic) => {
      const config = completeRunConfig(
        continued({
          method: 'ppo',
          model: { adapter: join(first, 'adapter') },
          data: { source: 'word_problems' },
          ppo: { critic },
        }) as never,
      ) as PpoRunConfig;
      const roles = await createPpoRoles(device, config, byteTokenizer());
      await expectFirst(roles.policy.adapter, 'policy');
      await expectFirst(roles.reference?.role.adapter, 'reference');
      expect(roles.reference?.role.adapter).not.toBe(roles.policy.adapter);
      if (critic === 'adapter') await expectFirst(roles.critic?.own?.role.adapter, 'critic');
      roles.dispose();
    },
  );

  it('is M0 of rounds', async () => {
    const begun = await train(
      tinyRounds({ model: { base: 'word-problems' }, lora: TINY_LORA, step_kto: { learning_rate: 1e-2 } }),
      { output: join(folder, 'm') },
    );
    const reference = async (reference: string) => {
      const step_kto = { reference, iterations: 1 };
      const output = join(folder, `m-${reference}`);
      const model = { base: 'word-problems', adapter: begun.directory };
      await train(tinyRounds({ model, step_kto }), { output });
      return readFileSync(join(output, 'artefacts', 'reference-1.jsonl'), 'utf8');
    };
    // The policy of the first round is M0.
    expect(await reference('m0')).toBe(await reference('previous'));
  });
});

describe('model.adapter refuses', () => {
  const refusal = async (more: Record<string, object | string>) => {
    const output = join(folder, 'refused');
    return train(continued(more), { output }).then(
      () => 'it was trained',
      (error: Error) => error.message,
    );
  };

  it.each([
    [{ lora: 'none' }, /^config: lora is none, and model\.adapter names an adapter/],
    [{ lora: { r: 8 } }, /^lora\.r: expected 2 as in .*first\/adapter, .* found 8; remove lora\.r$/],
    [{ lora: { lora_alpha: 2 } }, /^lora\.lora_alpha: expected 4 .* found 2;/],
    [{ lora: { use_rslora: true } }, /^lora\.use_rslora: expected false .* found true;/],
    [
      { lora: { rank_pattern: { q_proj: 4 } } },
      /^lora\.rank_pattern: expected \{\} .* found \{"q_proj":4\};/,
    ],
    [
      { lora: { target_modules: ['q_proj'] } },
      /^lora\.target_modules: expected \d+ modules .* found \d+ \(.*down_proj differs\);/,
    ],
    [
      { lora: { modules_to_save: ['lm_head'] } },
      /^lora\.modules_to_save: expected \[\] .* found \["lm_head"\]/,
    ],
    [{ model: { adapter: 'no/such' } }, /^config: model\.adapter leads nowhere: there is no no\/such/],
    [
      { model: { adapter: join(folder) } },
      /model\.adapter .* is no adapter: expected a directory with adapter_config\.json/,
    ],
    [
      { model: { adapter: first, base: 'word-problems' } },
      /was trained on embedded, and model\.base is word-problems, another model/,
    ],
    [
      { model: { adapter: first, base: goldenDirectory('llama3') } },
      /was trained on embedded, and model\.base is .*llama3, another/,
    ],
    [
      { method: 'pretrain' },
      /method pretrain trains every parameter and goes on from no adapter; remove model\.adapter/,
    ],
    [
      { model: { adapter: first, base: { init: TINY }, tokenizer: 'bytes' } },
      /model\.adapter needs the base that it was trained on/,
    ],
  ])('%j', async (more, sentence) => {
    const found = await refusal(more as never);
    expect(found.split('\n')).toHaveLength(1);
    expect(found).toMatch(sentence);
  });

  it('shapes of another base, where the adapter does not name its own', async () => {
    const adapter = changed('unnamed', { base_model_name_or_path: null });
    expect(
      await refusal({ model: { adapter, base: goldenDirectory('llama3'), tokenizer: 'bytes' } }),
    ).toMatch(/^model\.adapter does not fit model\.base .*llama3: /);
    const copy = join(folder, 'copy');
    cpSync(baseDirectory('embedded'), copy, { recursive: true });
    const { model, lora } = completeRunConfig(continued()) as SftRunConfig;

    // A copy of its base is its base.
    await checkAdapter({ lora, model: { ...model, base: copy, adapter: join(first, 'adapter') } });
    const weights = join(copy, 'model.safetensors');
    const bytes = readFileSync(weights);
    bytes[bytes.length - 1] = (bytes[bytes.length - 1] as number) ^ 1;
    writeFileSync(weights, bytes);
    await expect(
      checkAdapter({ lora, model: { ...model, base: copy, adapter: join(first, 'adapter') } }),
    ).rejects.toThrow(/was trained on embedded, and model\.base is .*copy, another model/);
  });

  it('a run without an adapter, and files that are missing', async () => {
    const run = join(folder, 'whole');
    mkdirSync(join(run, 'model'), { recursive: true });
    writeFileSync(join(run, 'config.yaml'), '');
    expect(await refusal({ model: { adapter: run } })).toMatch(
      /is a run with no adapter yet; let it end first/,
    );
    writeFileSync(join(run, 'model', 'config.json'), '{}');
    expect(await refusal({ model: { adapter: run } })).toMatch(
      /trained every weight; name it as model\.base/,
    );
    const adapter = changed('headless', {});
    rmSync(join(adapter, 'adapter_model.safetensors'));
    expect(await refusal({ model: { adapter } })).toMatch(/adapter_model\.safetensors/);
  });

  it('a classifier where none is trained', async () => {
    const reward = join(folder, 'reward');
    const settings = { max_steps: 1, tokens_per_step: 512, micro_batch_tokens: 512 };
    await train(continued({ method: 'reward', reward_model: settings } as never), { output: reward });
    // The head was new beside the pairs; another run of the same kind continues both.
    const again = join(folder, 'again');
    await train(
      continued({
        method: 'reward',
        reward_model: { ...settings, learning_rate: 1e-30, load_best_model_at_end: false },
        model: { adapter: reward },
      }),
      { output: again },
    );
    const [before, after] = [reward, again].map((run) =>
      tensors(join(run, 'adapter', 'adapter_model.safetensors')),
    );
    expect(before?.has('base_model.model.score.weight')).toBe(true);
    expect(after).toEqual(before);
    expect(await refusal({ model: { adapter: reward } })).toMatch(
      /score\.weight': expected none in what is trained here, found \[1, \d+\]/,
    );
  });
});
