// The examples of --help can be copied at any width.
import { expect, it } from 'vitest';
import { commandLine } from '../../../src/cli/cli.js';

/** The lines of the examples of a command's help. */
async function examplesOf(path: readonly string[], width: number): Promise<string[]> {
  const help = await commandLine(path, { width }).getHelp();
  const [, examples = ''] = /^Examples:\n((?: .*\n?)*)/m.exec(help) ?? [];
  return examples.trimEnd().split('\n');
}

it.each([20, 60, 100, 200])(
  'prints each command unbroken, and its description under it, at %d columns',
  async (width) => {
    const run = await examplesOf(['run'], width);
    expect(run.slice(0, 2)).toEqual([
      '  steptrain run',
      '      train the built-in example (generated data, no download)',
    ]);
    expect(run.slice(-2)).toEqual([
      '  steptrain run --resume runs/my --set run.max_minutes=60',
      '      resume it for another hour',
    ]);
    expect(await examplesOf(['data', 's3c'], width)).toContain(
      '  steptrain data s3c my.yaml s3c --set corrections.annotate.url=http://127.0.0.1:8000 --set corrections.annotate.model=teacher',
    );
    // Examples of the whole, not those of a command.
    expect(await examplesOf([], width)).toEqual([
      '  steptrain run',
      '      train the built-in example',
      '  steptrain recipes ls',
      '      what else there is to train',
    ]);
  },
);
