import { readFileSync } from 'node:fs';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { ModelHead } from '../../src/architectures/heads.js';
import { modelModules, readModelConfig } from '../../src/architectures/table.js';
import { adapterTensors } from '../../src/weights/adapter.js';
import { type LoraConfig, parseAdapterConfig } from '../../src/weights/adapter-config.js';
import type { JsonObject } from '../../src/weights/json.js';
import { loraPlan } from '../../src/weights/lora-plan.js';
import { goldenPath } from './golden.js';

interface Case {
  readonly name: string;
  readonly model: string;
  readonly task: 'CAUSAL_LM' | 'TOKEN_CLS' | 'SEQ_CLS';
  /** Configuration given to PEFT. */
  readonly given: JsonObject;
  /** Configuration that PEFT saved. */
  readonly adapter_config: JsonObject;
  /** Rank and scaling. */
  readonly modules: Record<string, [number, number]>;
  readonly tensors: Record<string, number[]>;
}

const cases: readonly Case[] = JSON.parse(readFileSync(goldenPath('peft.json'), 'utf8'));
const HEADS: Record<Case['task'], ModelHead> = {
  CAUSAL_LM: { kind: 'causal' },
  TOKEN_CLS: { kind: 'token', numLabels: 3, labels: undefined, bias: true, dropout: 0.1 },
  SEQ_CLS: { kind: 'sequence', numLabels: 2, labels: undefined },
};
const modulesOf = (model: string, task: Case['task'] = 'CAUSAL_LM') =>
  modelModules({ ...readModelConfig(goldenPath(model)), head: HEADS[task] });
const parse = (json: JsonObject) => parseAdapterConfig({ peft_type: 'LORA', ...json }, 'adapter_config.json');
const plan = (json: JsonObject, model = 'llama3') =>
  loraPlan(parse({ target_modules: ['q_proj'], ...json }), modulesOf(model), {
    where: 'adapter_config.json',
  });

describe.each(cases)('PEFT: $name', ({ model, task, given, adapter_config, modules, tensors }) => {
  const all = modulesOf(model, task);
  const classifiers = task === 'CAUSAL_LM' ? {} : { modules_to_save: ['classifier', 'score'] };
  it.each<[string, LoraConfig]>([
    ['the settings', parse({ task_type: task, ...given, ...classifiers })],
    ['the saved adapter_config.json', parse(adapter_config)],
  ])('changes the same modules with the same rank and scaling, from %s', (_, config) => {
    const { modules: found } = loraPlan(config, all);
    const expected = Object.entries(modules).map(([name, [r, scaling]]) => [
      name,
      r,
      expect.closeTo(scaling, 14),
    ]);
    const byName = (a: unknown[], b: unknown[]) => (String(a[0]) < String(b[0]) ? -1 : 1);
    expect(found.map(({ module, r, scaling }) => [module, r, scaling]).sort(byName)).toEqual(
      expected.sort(byName),
    );
  });

  it('has the same tensors', () => {
    const found = adapterTensors(loraPlan(parse(adapter_config), all)).map(({ name, shape }) => [
      name,
      shape,
    ]);
    expect(Object.fromEntries(found)).toEqual(tensors);
  });
});

describe('loraPlan', () => {
  it('has names and shapes', () => {
    const { modules, saved } = plan({ r: 4, lora_alpha: 6, target_modules: ['k_proj'] });
    expect(modules).toHaveLength(2);
    expect(modules[1]).toEqual({
      module: 'model.layers.1.self_attn.k_proj',
      r: 4,
      alpha: 6,
      scaling: 1.5,
      aName: 'base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight',
      bName: 'base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight',
      aShape: [4, 64],
      bShape: [32, 4],
      aInit: { kind: 'uniform', bound: 1 / 8 },
      bInit: { kind: 'zero' },
    });
    expect(saved).toEqual([]);
  });

  it('initialises like PEFT: kaiming-uniform, gaussian, or none', () => {
    const init = (value: boolean | string) => {
      const { aInit, bInit } = plan({ r: 4, init_lora_weights: value, target_modules: ['down_proj'] })
        .modules[0]!;
      return [aInit, bInit];
    };
    const uniform = (inputs: number) => ({ kind: 'uniform', bound: 1 / Math.sqrt(inputs) });
    expect(init(true)).toEqual([uniform(128), { kind: 'zero' }]);
    expect(init('gaussian')).toEqual([{ kind: 'normal', deviation: 1 / 4 }, { kind: 'zero' }]);
    expect(init(false)).toEqual([uniform(128), uniform(4)]);
  });

  it('names the saved weights as in the base model and in the file', () => {
    const config = parse({ target_modules: ['q_proj'], modules_to_save: ['score'], task_type: 'TOKEN_CLS' });
    expect(loraPlan(config, modulesOf('qwen2', 'TOKEN_CLS')).saved).toEqual([
      {
        module: 'score',
        kind: 'score',
        weight: 'score.weight',
        name: 'base_model.model.score.weight',
        shape: [3, 64],
        init: { kind: 'normal', deviation: 0.02 },
      },
      {
        module: 'score',
        kind: 'score',
        weight: 'score.bias',
        name: 'base_model.model.score.bias',
        shape: [3],
        init: { kind: 'zero' },
      },
    ]);
  });

  it('leaves the head out of all-linear', () => {
    const of = (task: Case['task']) =>
      loraPlan(parse({ target_modules: 'all-linear', task_type: task }), modulesOf('llama3', task));
    for (const task of ['SEQ_CLS', 'TOKEN_CLS'] as const)
      expect(of(task).modules.map(({ module }) => module)).toEqual(
        of('CAUSAL_LM').modules.map(({ module }) => module),
      );
    expect(of('TOKEN_CLS').modules).toHaveLength(14);
  });

  it('ignores a target that fits nothing only on request', () => {
    const config = parse({ target_modules: ['q_proj', 'Wqkv'] });
    expect(() => loraPlan(config, modulesOf('llama3'))).toThrow(
      "lora: target_modules: no module of the model is called 'Wqkv'",
    );
    expect(loraPlan(config, modulesOf('llama3'), { strictTargets: false }).modules).toHaveLength(2);
  });

  it.each<[string, JsonObject, string, RegExp]>([
    [
      'a pattern that fits nothing',
      { target_modules: 'q_proj' },
      'llama3',
      /target_modules fits no module of the model/,
    ],
    ['everything excluded', { exclude_modules: ['q_proj'] }, 'llama3', /target_modules fits no module/],
    ['a layer beyond the last', { layers_to_transform: [7] }, 'llama3', /target_modules fits no module/],
    [
      'the head',
      { target_modules: ['q_proj', 'lm_head'] },
      'llama3',
      /target_modules fits 'lm_head': expected only the linear layers/,
    ],
    [
      'the embedding',
      { target_modules: '.*(embed_tokens|q_proj)' },
      'llama3',
      /target_modules fits 'model\.embed_tokens'/,
    ],
    ['a norm', { target_modules: ['norm'] }, 'llama3', /target_modules fits 'model\.norm'/],
    [
      'a saved linear layer',
      { modules_to_save: ['v_proj'] },
      'llama3',
      /modules_to_save: expected only heads and embeddings of the model, found 'model\.layers\.0\.self_attn\.v_proj'/,
    ],
    [
      'a saved module that is absent',
      { modules_to_save: ['value_head'] },
      'llama3',
      /modules_to_save: .* found 'value_head'/,
    ],
    [
      'a saved head that is tied',
      { modules_to_save: ['lm_head'] },
      'qwen2',
      /'lm_head': the model ties its embedding to its head/,
    ],
    [
      'a Python construct without equal',
      { target_modules: '(?i).*Q_PROJ' },
      'llama3',
      /adapter_config\.json: target_modules: the pattern "\(\?i\).*" is not supported: the group \(\?i/,
    ],
    ['an unknown escape', { target_modules: '.*\\Qq_proj' }, 'llama3', /the escape \\Q/],
    ['a broken pattern', { target_modules: '.*(q_proj' }, 'llama3', /not supported: .*Unterminated group/],
    [
      'a class that JavaScript reads differently',
      { target_modules: '[]a]*' },
      'llama3',
      /a class that begins with/,
    ],
    [
      'a possessive quantifier',
      { rank_pattern: { 'q_pro++j': 3 } },
      'llama3',
      /rank_pattern: the pattern .* not supported: .*Nothing to repeat/,
    ],
    [
      'a pattern without end',
      { target_modules: '(([a-z0-9_.]+)+)+!' },
      'llama3',
      /target_modules: the patterns take more than 1000 ms of a processor/,
    ],
  ])('refuses %s', (_, json, model, message) => {
    expect(() => plan(json, model)).toThrow(message);
  });
});

it('says so once where two patterns with other values fit a module, of which the first counts', () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  onTestFinished(() => said.mockRestore());
  const both = { 'layers.0.self_attn.q_proj': 3, q_proj: 5 };
  const ranks = (json: JsonObject) =>
    plan(json)
      .modules.slice(0, 2)
      .map(({ r }) => r);
  expect(ranks({ rank_pattern: both })).toEqual([3, 5]);
  expect(ranks({ rank_pattern: both })).toEqual([3, 5]);
  expect(said.mock.calls).toEqual([
    [
      'Warning: adapter_config.json: rank_pattern: "layers.0.self_attn.q_proj" (3) and "q_proj" (5) fit ' +
        'model.layers.0.self_attn.q_proj, and the first counts; PEFT takes the first too, and sorts them when it saves: leave one',
    ],
  ]);
  ranks({ rank_pattern: { 'layers.0.self_attn.q_proj': 4, q_proj: 4 } });
  expect(said).toHaveBeenCalledTimes(1);
});

describe('patterns that fit no module with a pair', () => {
  const strict = (json: JsonObject) => () =>
    loraPlan(parse({ target_modules: ['q_proj'], ...json }), modulesOf('llama3'), { strictPatterns: true });

  it.each<[string, JsonObject, RegExp]>([
    [
      'a slip',
      { rank_pattern: { q_proj: 2, q_porj: 2 } },
      /rank_pattern: no module .* called 'q_porj'; .*q_proj/,
    ],
    ['a misplaced anchor', { alpha_pattern: { '^q_proj': 9 } }, /alpha_pattern: no module .* '\^q_proj'/],
    ['another module', { alpha_pattern: { v_proj: 9, up_proj: 9 } }, /'v_proj', 'up_proj'/],
  ])('are refused in a new adapter: %s', (_, json, message) => {
    expect(strict(json)).toThrow(message);
  });

  it('are passed over in one that PEFT trained, as PEFT does', () => {
    expect(plan({ rank_pattern: { q_porj: 2 } }).modules.every(({ r }) => r === 8)).toBe(true);
    expect(strict({ rank_pattern: { '^model.layers.0.*q_proj': 2 } })().modules.map(({ r }) => r)).toEqual(
      expect.arrayContaining([2, 8]),
    );
  });
});
