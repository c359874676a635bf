// -n has one meaning in every command: how many samples are drawn of each prompt or problem.
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

test('-n is the number of samples of each prompt or problem wherever a command has it', () => {
  const page = readFileSync(new URL('../../docs/reference/commands.md', import.meta.url), 'utf8');
  const lines = page.split('\n').filter((line) => /^\s+(?:-n\b|--\S+, -n\b|-n, )/.test(line));
  expect(lines.length).toBeGreaterThanOrEqual(3);
  for (const line of lines) expect(line).toMatch(/^ +-n +Samples of each (?:prompt|problem)\b/);
});
