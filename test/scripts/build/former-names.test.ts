// What the main entry passes on for one release is deprecated in its types; what it keeps is not.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import ts from 'typescript';
import { afterAll, expect, it } from 'vitest';

// Inside the package, so that `steptrain` resolves to it.
const folder = resolve('build/former-names');
afterAll(() => rmSync(folder, { recursive: true, force: true }));

it('an editor strikes through names of further entries where they come from the main one', () => {
  mkdirSync(folder, { recursive: true });
  const file = join(folder, 'program.ts');
  writeFileSync(
    file,
    [
      "import { hiddenStates, openDevice, type RewardSource } from 'steptrain';",
      "import { Tape } from 'steptrain/ops';",
      "import { AdamW } from 'steptrain/train';",
      'export type { RewardSource };',
      'console.log(hiddenStates, openDevice, Tape, AdamW);',
    ].join('\n'),
  );
  const service = ts.createLanguageService({
    getScriptFileNames: () => [file],
    getScriptVersion: () => '1',
    getScriptSnapshot: (name) => {
      const text = ts.sys.readFile(name);
      return text === undefined ? undefined : ts.ScriptSnapshot.fromString(text);
    },
    getCurrentDirectory: () => process.cwd(),
    getCompilationSettings: () => ({
      module: ts.ModuleKind.NodeNext,
      target: ts.ScriptTarget.ES2022,
      strict: true,
      types: ['node'],
    }),
    getDefaultLibFileName: ts.getDefaultLibFilePath,
    fileExists: ts.sys.fileExists,
    readFile: ts.sys.readFile,
    directoryExists: ts.sys.directoryExists,
    getDirectories: ts.sys.getDirectories,
  });
  const said = (diagnostics: readonly ts.Diagnostic[]) =>
    diagnostics.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, ' '));
  expect(said(service.getSemanticDiagnostics(file))).toEqual([]);
  expect(new Set(said(service.getSuggestionDiagnostics(file)))).toEqual(
    new Set(["'hiddenStates' is deprecated.", "'RewardSource' is deprecated."]),
  );
});
