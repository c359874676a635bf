import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { taskOfModel } from '../../../src/cli/eval/correction-task.js';
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
