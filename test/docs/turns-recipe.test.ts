// The settings that docs/how-to/turns.md adds to its recipe for a small judge go together.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { parseRunConfig } from '../../src/methods/config.js';

it('the recipe of a judge of turns takes the settings of its small base', () => {
  const page = readFileSync('docs/how-to/turns.md', 'utf8');
  const [, recipe = ''] = /^## A judge\n\n```yaml\n(.*?)^```/ms.exec(page) ?? [];
  const [command = ''] = /^ {4}npx steptrain run judge\.yaml --set (\\\n|.)*/m.exec(page) ?? [];
  const settings = [...command.matchAll(/--set (\S+)/g)].map(([, setting]) => setting as string);
  const { config } = parseRunConfig(recipe, { name: 'judge.yaml', settings });
  expect(config).toMatchObject({
    model: { base: 'word-problems-turns' },
    lora: 'none',
    data: { max_length: 512 },
    reward_model: { tokens_per_step: 1024, learning_rate: 5e-4, num_train_epochs: 8 },
  });
});
