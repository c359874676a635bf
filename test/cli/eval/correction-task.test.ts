import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { calibrationTask, taskOfModel } from '../../../src/cli/eval/correction-task.js';
import { writeJson } from '../../../src/weights/checkpoint-writer.js';
import { temporaryDirectory } from '../../weights/temporary-directory.js';

test.each([
  ['a model of the package', 'word-problems', false],
  ['a judge of the package', 'word-problems-judge', false],
  ['an adapter on a model of the package', { base: 'word-problems' }, false],
  ['an adapter on a GGUF file', { base: '/models/smollm2.Q4_1.gguf' }, true],
  ['an adapter of PEFT', {}, true],
  ['an id of the hub', 'HuggingFaceTB/SmolLM2-135M', true],
] as const)('advice to %s is that for its base', async (_, of, pretrained) => {
  const directory = temporaryDirectory();
  const data = join(directory, 'rows.jsonl');
  writeFileSync(data, JSON.stringify({ problem: 'What is 2 + 2?', steps: ['2 + 2 = 4'], labels: [1] }));
  if (typeof of !== 'string') {
    const config = {
      peft_type: 'LORA',
      r: 2,
      target_modules: ['q_proj'],
      base_model_name_or_path: 'owner/name',
    };
    await writeJson(join(directory, 'adapter_config.json'), config);
    if ('base' in of) await writeJson(join(directory, 'steptrain.json'), { method: 'sft', ...of });
  }
  const model = typeof of === 'string' ? of : directory;
  expect((await taskOfModel({ model }, { data })).pretrained).toBe(pretrained);
});

test.each([
  [{}, [1, 1]],
  [{ data: { neutral: 'negative' } }, [1, 0]],
  [{ eval_verdicts: { neutral: 'negative' } }, [1, 0]],
  [{ eval_verdicts: { neutral: 'drop' } }, [1, null]],
])('a calibration on a file counts neutral steps as a run with %j does', async (settings, labels) => {
  const run = temporaryDirectory();
  const row = (problem: string, rating: number) => {
    const completions = (own: number) => [{ text: '2 + 2 = 4', rating: own, flagged: false }];
    const steps = [1, rating].map((own) => ({ completions: completions(own), chosen_completion: 0 }));
    return JSON.stringify({ question: { problem }, label: { finish_reason: 'solution', steps } });
  };
  const [train, data] = [join(run, 'train.jsonl'), join(run, 'data.jsonl')];
  writeFileSync(train, row('What is 3 + 3?', -1));
  writeFileSync(data, row('What is 2 + 2?', 0));
  const base = 'word-problems';
  const config = { method: 'sft', model: { base }, ...settings };
  await writeJson(join(run, 'config.yaml'), {
    ...config,
    data: { train, split: [1, 0, 0], ...('data' in settings ? settings.data : {}) },
  });
  const adapter = join(run, 'adapter');
  mkdirSync(adapter);
  await writeJson(join(adapter, 'adapter_config.json'), {
    peft_type: 'LORA',
    r: 2,
    target_modules: ['q_proj'],
  });
  const judge = { kind: 'verdict', threshold: 0.5, max_length: 256 };
  await writeJson(join(adapter, 'steptrain.json'), { method: 'sft', base, judge });
  const { records, warnings } = await calibrationTask(run, data);
  expect(records.map(({ steps }) => steps.map(({ label }) => label))).toEqual([labels]);
  expect(warnings).toEqual([]);
});
