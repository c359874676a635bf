// Every TypeScript block of README and docs/ compiles under --strict and runs in a folder of its own, on golden models
// if it names a model directory.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { codeBlocks, pages } from './pages.js';

const blocks = pages().flatMap(([page, text]) =>
  codeBlocks(text).map((code, i) => ({
    page,
    code,
    name: `${page.replaceAll(/\W+/g, '-')}-${i + 1}`,
  })),
);
// Inside the package, so that `steptrain` resolves to it.
const build = resolve('build/docs');
let folder: string;

beforeAll(() => {
  rmSync(build, { recursive: true, force: true });
  mkdirSync(build, { recursive: true });
  for (const { name, code } of blocks) writeFileSync(join(build, `${name}.ts`), code);
  writeFileSync(
    join(build, 'tsconfig.json'),
    JSON.stringify({
      extends: '../../tsconfig.json',
      include: [],
      // As a user sees the package: by its exports.
      compilerOptions: { noEmit: false, declaration: false, rootDir: '.', outDir: '.', paths: {} },
      files: blocks.map(({ name }) => `${name}.ts`),
    }),
  );
  folder = mkdtempSync(join(tmpdir(), 'steptrain-docs-'));
  mkdirSync(join(folder, 'models'));
  mkdirSync(join(folder, 'runs/mine'), { recursive: true });
  symlinkSync(resolve('test/golden/qwen2'), join(folder, 'models/qwen'));
  symlinkSync(resolve('test/golden/qwen2/adapter'), join(folder, 'runs/mine/adapter'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const node = (cwd: string, ...args: readonly string[]) => {
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd, encoding: 'utf8' });
  return { status, output: `${stdout}${stderr}` };
};

it('they compile under --strict', () => {
  expect(blocks.length).toBeGreaterThan(4);
  const compiled = node('.', resolve('node_modules/typescript/bin/tsc'), '-p', build);
  expect(compiled).toEqual({ status: 0, output: '' });
});

describe.each(blocks)('$name', ({ name }) => {
  it('runs', () => {
    expect(node(folder, join(build, `${name}.js`))).toMatchObject({ status: 0 });
  });
});
