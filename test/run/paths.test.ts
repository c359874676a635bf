import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { completeRunConfig, parseRunConfig } from '../../src/methods/config.js';
import { resolveInputs } from '../../src/run/paths.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

let folder: string;
beforeEach(() => {
  folder = temporaryDirectory();
});

function config(train: string | readonly object[], model: Record<string, unknown>) {
  return completeRunConfig({ method: 'sft', data: { train }, model });
}

describe('the paths of a configuration', () => {
  it('become absolute', async () => {
    writeFileSync(join(folder, 'a.jsonl'), '');
    mkdirSync(join(folder, 'base'));
    writeFileSync(join(folder, 'base/config.json'), '{}');
    const { data, model, run } = await resolveInputs(config('a.jsonl', { base: 'base' }), () => 'r', {
      cwd: folder,
    });
    expect(data.train).toBe(join(folder, 'a.jsonl'));
    expect(model).toMatchObject({ base: join(folder, 'base'), tokenizer: 'base' });
    expect(run.output_dir).toBe(join(folder, 'runs/run'));
  });

  it('include a tokenizer found beside the data', async () => {
    mkdirSync(join(folder, 'data/prm'), { recursive: true });
    mkdirSync(join(folder, 'tokenizers/qwen'), { recursive: true });
    writeFileSync(join(folder, 'data/prm/a.jsonl'), '');
    const init = { hidden_size: 8, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 1 };
    const named = config(join(folder, 'data/prm/a.jsonl'), { base: { init }, tokenizer: 'tokenizers/qwen' });
    const { model } = await resolveInputs(named, () => 'r', { cwd: '/' });
    expect(model.tokenizer).toBe(join(folder, 'tokenizers/qwen'));
  });

  it('in a list of training data keep their weights', async () => {
    for (const name of ['a.jsonl', 'b.jsonl']) writeFileSync(join(folder, name), '');
    const listed = config([{ path: 'a.jsonl', weight: 2 }, { path: 'b.jsonl' }], { base: 'embedded' });
    const { data } = await resolveInputs(listed, () => 'r', { cwd: folder });
    expect(data.train).toEqual([
      { path: join(folder, 'a.jsonl'), weight: 2 },
      { path: join(folder, 'b.jsonl') },
    ]);
    const lost = config([{ path: 'a.jsonl' }, { path: 'no.jsonl' }], { base: 'embedded' });
    await expect(resolveInputs(lost, (key) => key.join('.'), { cwd: folder })).rejects.toThrow(
      /^data\.train\.1: .*there is no no\.jsonl/,
    );
  });

  it('of a run as base are those of its whole model; one with an adapter says how to merge it', async () => {
    const run = (name: string) => {
      mkdirSync(join(folder, name));
      writeFileSync(join(folder, name, 'config.yaml'), '');
    };
    writeFileSync(join(folder, 'a.jsonl'), '');
    for (const name of ['whole', 'lora', 'begun']) run(name);
    mkdirSync(join(folder, 'whole/model'));
    writeFileSync(join(folder, 'whole/model/config.json'), '{}');
    mkdirSync(join(folder, 'lora/adapter'));
    const base = async (name: string) =>
      (await resolveInputs(config('a.jsonl', { base: name }), () => 'r.yaml:3', { cwd: folder })).model.base;
    expect(await base('whole')).toBe(join(folder, 'whole/model'));
    await expect(base('lora')).rejects.toThrow(
      `r.yaml:3: ${folder}/lora is a run with an adapter, not a whole model; put it into its base with npx steptrain merge BASE ${folder}/lora/adapter OUT`,
    );
    await expect(base('begun')).rejects.toThrow(
      `${folder}/begun is a run with no model yet; let it end first`,
    );
  });

  it('are refused where they are no model', async () => {
    writeFileSync(join(folder, 'a.jsonl'), '');
    for (const name of ['empty', 'adapter']) mkdirSync(join(folder, name));
    writeFileSync(join(folder, 'adapter/adapter_config.json'), '{}');
    const resolved = (model: Record<string, unknown>) =>
      resolveInputs(config('a.jsonl', model), () => 'r.yaml:3', { cwd: folder });
    const base = (name: string) => resolved({ base: name });
    await expect(base('empty')).rejects.toThrow(
      `r.yaml:3: ${folder}/empty is no model: it has no config.json; name a model directory, a hub id or one of embedded, word-problems, word-problems-misread, word-problems-turns, word-problems-attempts`,
    );
    await expect(base('adapter')).rejects.toThrow(
      `r.yaml:3: ${folder}/adapter is an adapter, not a model; name the model that it was trained on`,
    );
    await expect(base('word-problem')).rejects.toThrow(
      `there is no word-problem (looked for from ${folder}); did you mean word-problems?`,
    );
    await expect(base('word-problems-judge')).rejects.toThrow(
      'word-problems-judge is an adapter, a judge on word-problems-attempts: as a base take word-problems-attempts',
    );
    // It was never meant for the hub.
    const init = { hidden_size: 8, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 1 };
    await expect(resolved({ base: { init }, tokenizer: 'tokenizers/qwen2_5' })).rejects.toThrow(
      `there is no tokenizers/qwen2_5 (looked for from ${folder}); name a directory with tokenizer.json, or the hub id of a model that has it`,
    );
  });

  it('are refused with the place if they do not exist', async () => {
    const { config: lost, locate } = parseRunConfig('method: sft\ndata:\n  train: no.jsonl\n', {
      name: 'r.yaml',
    });
    await expect(resolveInputs(lost, locate, { cwd: folder })).rejects.toThrow(
      `r.yaml:3:10: data.train leads nowhere: there is no no.jsonl (looked for from ${folder})`,
    );
  });
});
