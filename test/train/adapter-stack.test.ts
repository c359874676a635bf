// Runs that train a new adapter on top of another: what they begin with, save, resume from and refuse.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { completeRunConfig } from '../../src/methods/config.js';
import type { PpoRunConfig } from '../../src/methods/ppo/config.js';
import { createPpoRoles } from '../../src/methods/ppo/roles.js';
import { resume, train } from '../../src/methods/run.js';
import type { SftRunConfig } from '../../src/methods/sft/config.js';
import { createStepAmcRoles } from '../../src/methods/stepamc/roles.js';
import type { Adapter } from '../../src/models/adapter.js';
import { baseDirectory } from '../../src/models/base.js';
import type { Decoder } from '../../src/models/decoder.js';
import { loadDecoder } from '../../src/models/load.js';
import { readWeight } from '../../src/models/save.js';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { checkAdapter } from '../../src/train/plan/adapter-start.js';
import { describeRun } from '../../src/train/plan/dry-run.js';
import { cli } from '../cli/run-cli.js';
import { metrics, tensors } from '../e2e/program.js';
import { tensorsIn } from '../models/golden.js';
import { openTest } from '../ops/devices.js';
import { maxDifference } from '../ops/numbers.js';
import { TINY_LORA, tinyRounds, tinySft } from './tiny-sft.js';

const device = openTest();
afterAll(() => device.dispose());

const folder = mkdtempSync(join(tmpdir(), 'steptrain-stack-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
/** Of rank 2 and scale 2 on `q_proj` and `down_proj`. */
const first = join(folder, 'first');
/** Above it, of rank 3 and scale 1 on `q_proj` and `v_proj`. */
const SECOND = { r: 3, lora_alpha: 3, target_modules: ['q_proj', 'v_proj'] };
const WEIGHTS = join('adapter', 'adapter_model.safetensors');
const STACK = { adapter: first, adapter_mode: 'stack' };

const stacked = (more: Record<string, object | string> = {}) =>
  tinySft({ model: STACK, lora: SECOND, ...more });

beforeAll(async () => {
  vi.spyOn(console, 'error').mockImplementation(() => {});
  await train(tinySft({ lora: TINY_LORA }), { output: first });
});

const stored = (run: string) => tensorsIn(join(run, WEIGHTS));

/** The columns of a saved B, [out, of], that belong to the first adapter, of rank 2. */
function firstColumns(both: Float32Array, of: number): Float32Array {
  return Float32Array.from(
    { length: (both.length / of) * 2 },
    (_, i) => both[Math.floor(i / 2) * of + (i % 2)] as number,
  );
}

/** Whether the saved adapter of a run holds the first one as it was, times its scale. */
function expectFirst(run: string): void {
  const own = stored(run);
  for (const [name, values] of stored(first)) {
    const found = own.get(name) as Float32Array;
    if (name.endsWith('lora_A.weight')) expect(found.subarray(0, values.length), name).toEqual(values);
    else
      expect(firstColumns(found, name.includes('q_proj') ? 5 : 2), name).toEqual(
        values.map((value) => 2 * value),
      );
  }
}

/** Whether the first adapter has been added to the weights of a decoder. */
async function expectMerged(decoder: Decoder): Promise<void> {
  const name = 'model.layers.0.self_attn.q_proj.weight';
  const directory = baseDirectory('embedded');
  const merged = await loadDecoder(device, directory, { dtype: 'f32', merged: join(first, 'adapter') });
  const plain = await loadDecoder(device, directory, { dtype: 'f32' });
  const found = await readWeight(decoder, name);
  expect(found).toEqual(await readWeight(merged, name));
  expect(maxDifference(found, await readWeight(plain, name))).toBeGreaterThan(1e-4);
  merged.dispose();
  plain.dispose();
}

const isNew = (adapter: Adapter | undefined) => adapter?.config.r === SECOND.r;

describe('model.adapter_mode stack', () => {
  it('leaves the section lora to the recipe', () => {
    const { lora } = completeRunConfig(stacked()) as SftRunConfig;
    expect(lora).toMatchObject(SECOND);
    const plain = completeRunConfig(tinySft({ model: STACK })) as SftRunConfig;
    expect(plain.lora).toEqual((completeRunConfig(tinySft({ lora: {} })) as SftRunConfig).lora);
  });

  it('says what the first says at a learning rate of nothing', async () => {
    const { directory } = await train(stacked({ sft: { max_steps: 1, learning_rate: 1e-30 } }), {
      output: join(folder, 'nothing'),
    });
    expectFirst(directory);
    const [ended, begun] = await Promise.all([first, directory].map(metrics));
    const auc = (lines: Record<string, unknown>[] = []) =>
      lines.findLast(({ phase }) => phase === 'sft')?.auc;
    expect(auc(begun as never)).toBeGreaterThan(0);
    expect(auc(begun as never)).toBeCloseTo(auc(ended as never) as number, 5);
    expect(begun?.[0]?.loss).not.toBe(ended?.[0]?.loss);
  });

  it('trains the second alone, and says the same when it is stopped and resumed', async () => {
    const whole = await train(stacked(), { output: join(folder, 'second') });
    const stop = new AbortController();
    const stopped = await train(stacked(), {
      output: join(folder, 'stopped'),
      signal: stop.signal,
      onStep: ({ step }) => {
        if (step === 2) stop.abort();
      },
    });
    expect(stopped.status).toBe('interrupted');
    const weights = join(first, WEIGHTS);
    const bytes = readFileSync(weights);
    const other = Buffer.from(bytes);
    other[other.length - 1] = (other[other.length - 1] as number) ^ 1;
    writeFileSync(weights, other);
    await expect(resume(stopped.directory)).rejects.toThrow(
      /other content of model\.adapter: adapter_model\.safetensors was changed/,
    );
    writeFileSync(weights, bytes);
    await resume(stopped.directory);
    expect(tensors(join(stopped.directory, WEIGHTS))).toEqual(tensors(join(whole.directory, WEIGHTS)));

    expectFirst(whole.directory);
    const one = stored(whole.directory);
    const layer = 'base_model.model.model.layers.0';
    const rank = (name: string) => {
      const a = one.get(`${layer}.${name}.lora_A.weight`) as Float32Array;
      const of = stored(first).get(`${layer}.self_attn.q_proj.lora_A.weight`) as Float32Array;
      return a.length / (of.length / 2);
    };
    expect([rank('self_attn.q_proj'), rank('self_attn.v_proj')]).toEqual([5, 3]);
    const learnt = one.get(`${layer}.self_attn.v_proj.lora_B.weight`) as Float32Array;
    expect(learnt.some((value) => value !== 0)).toBe(true);
    expect((await cli('inspect', 'run', whole.directory)).stdout).toMatch(/stacked on.*first\/adapter/);
  });

  it('saves what needs the first no longer, and can be gone on from', async () => {
    const moved = join(folder, 'moved');
    cpSync(join(folder, 'second', 'adapter'), moved, { recursive: true });
    const config = (await train(tinySft({ model: { adapter: moved } }), { output: join(folder, 'third') }))
      .directory;
    expect(stored(config).size).toBe(stored(join(folder, 'second')).size);
    const again = await train(stacked({ model: { adapter: moved, adapter_mode: 'stack' } }), {
      output: join(folder, 'fourth'),
    });
    const a = stored(again.directory).get('base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight');
    const before = tensorsIn(join(moved, 'adapter_model.safetensors')).get(
      'base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight',
    ) as Float32Array;
    expect(a).toHaveLength(2 * before.length);
    expect(a?.subarray(0, before.length)).toEqual(before);
  });

  it('needs no further role, which the dry run counts', async () => {
    const { methodOf } = await import('../../src/methods/table.js');
    const config = completeRunConfig(
      stacked({ method: 'stepamc', model: { ...STACK, adapter: join(first, 'adapter') } }),
    );
    const row = methodOf(config);
    const { lines } = await describeRun({ ...row, ...(await row.load()) }, config);
    expect(lines.join('\n')).toMatch(/frozen adapter parameters/);
    expect(lines.join('\n')).not.toMatch(/base adapter/);
  });

  it('lies under every role of StepAMC', async () => {
    const { model, lora } = completeRunConfig(
      stacked({ method: 'stepamc', model: { ...STACK, adapter: join(first, 'adapter') } }),
    ) as SftRunConfig;
    const roles = await createStepAmcRoles(device, {
      ...{ model, lora, seed: 1, gradientCheckpointing: false },
    });
    await expectMerged(roles.decoder);
    for (const name of ['policy', 'reference', 'reward'] as const)
      expect(isNew(roles[name]?.adapter), name).toBe(true);
    expect(roles.base).toEqual({});
    const directory = join(folder, 'roles');
    await roles.save((name) => join(directory, name), { reward: true, tokenizer: byteTokenizer() });
    for (const name of ['adapter', 'reward']) {
      const file = tensorsIn(join(directory, name, 'adapter_model.safetensors'));
      for (const [tensor, values] of stored(first))
        if (tensor.endsWith('lora_A.weight'))
          expect(file.get(tensor)?.subarray(0, values.length), `${name} ${tensor}`).toEqual(values);
    }
    roles.dispose();
  });

  it.each(['adapter', 'trunk', 'model'])(
    'lies under policy, reference and critic of PPO: %s',
    async (critic) => {
      const config = completeRunConfig(
        stacked({
          method: 'ppo',
          model: { ...STACK, adapter: join(first, 'adapter') },
          data: { source: 'word_problems' },
          ppo: { critic },
        }) as never,
      ) as PpoRunConfig;
      const roles = await createPpoRoles(device, config, byteTokenizer());
      await expectMerged(roles.decoder);
      expect(isNew(roles.policy.adapter)).toBe(true);
      expect(roles.reference).toMatchObject({ decoder: roles.decoder, role: {} });
      expect(roles.reference?.role.adapter).toBeUndefined();
      if (critic === 'model') await expectMerged(roles.critic?.own?.decoder as Decoder);
      roles.dispose();
    },
  );

  it('lies under M0 of rounds', async () => {
    const begun = await train(
      tinyRounds({
        model: { base: 'word-problems' },
        lora: TINY_LORA,
        step_kto: { learning_rate: 1e-2 },
      }),
      { output: join(folder, 'm') },
    );
    const reference = async (reference: string) => {
      const output = join(folder, `m-${reference}`);
      const model = { base: 'word-problems', adapter: begun.directory, adapter_mode: 'stack' };
      await train(tinyRounds({ model, lora: SECOND, step_kto: { reference, iterations: 1 } }), { output });
      return readFileSync(join(output, 'artefacts', 'reference-1.jsonl'), 'utf8');
    };
    // The policy of the first round is M0.
    expect(await reference('m0')).toBe(await reference('previous'));
  });
});

describe('model.adapter_mode refuses', () => {
  const refusal = async (more: Record<string, object | string>) =>
    train(stacked(more), { output: join(folder, 'refused') }).then(
      () => 'it was trained',
      (error: Error) => error.message,
    );

  it.each([
    [{ model: { adapter_mode: 'stack' } }, /adapter_mode is stack, and there is no model\.adapter; name one/],
    [{ model: { ...STACK, adapter_mode: 'merge' } }, /model\.adapter_mode.*"merge"/],
    [{ lora: 'none' }, /lora is none, and model\.adapter names an adapter to go on from/],
    [
      { model: { ...STACK, base: 'word-problems' } },
      /was trained on embedded, and model\.base is word-problems/,
    ],
  ])('%j', async (more, sentence) => {
    const found = await refusal(more as never);
    expect(found.split('\n')).toHaveLength(1);
    expect(found).toMatch(sentence);
  });

  it('an adapter with a head', async () => {
    const reward = join(folder, 'reward');
    const settings = { max_steps: 1, tokens_per_step: 512, micro_batch_tokens: 512 };
    await train(stacked({ method: 'reward', reward_model: settings }), { output: reward });
    // It was stacked itself: its head is beside the pairs of both.
    const own = stored(reward);
    expect(own.has('base_model.model.score.weight')).toBe(true);
    for (const [name, values] of stored(first))
      if (name.endsWith('lora_A.weight')) expect(own.get(name)?.subarray(0, values.length)).toEqual(values);
    const sentence =
      /^model\.adapter_mode stack: .*modules_to_save: expected none in an adapter that another is stacked on, found a head; continue the adapter, or merge it/;
    expect(await refusal({ model: { ...STACK, adapter: reward } })).toMatch(sentence);
    const { model, lora } = completeRunConfig(stacked()) as SftRunConfig;
    await expect(
      checkAdapter({ lora, model: { ...model, adapter: join(reward, 'adapter') } }),
    ).rejects.toThrow(sentence);
  });
});
