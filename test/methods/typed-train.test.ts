// `train()` is typed by method: what a program of a user gets wrong fails under tsc --strict.
import { spawnSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';

// Inside the package, so that `steptrain` resolves to it.
const build = resolve('build/typed-train');
beforeAll(() => {
  rmSync(build, { recursive: true, force: true });
  mkdirSync(build, { recursive: true });
});
afterAll(() => rmSync(build, { recursive: true, force: true }));

/** The errors of programs, by name; compiled together, as the compiler takes seconds to start. */
function errorsOf(programs: Readonly<Record<string, string>>): Map<string, string> {
  for (const [name, code] of Object.entries(programs))
    writeFileSync(
      join(build, `${name}.ts`),
      `import { type RunConfigInput, judgeSteps, train } from 'steptrain';\n${code}`,
    );
  writeFileSync(
    join(build, 'tsconfig.json'),
    JSON.stringify({
      compilerOptions: {
        strict: true,
        module: 'nodenext',
        target: 'es2022',
        noEmit: true,
        skipLibCheck: true,
        types: ['node'],
      },
      include: ['*.ts'],
    }),
  );
  const { stdout } = spawnSync(process.execPath, [resolve('node_modules/typescript/bin/tsc'), '-p', build], {
    encoding: 'utf8',
  });
  const errors = new Map(Object.keys(programs).map((name) => [name, '']));
  let at = '';
  for (const line of stdout.split('\n')) {
    at = /([\w-]+)\.ts\(\d+,\d+\)/.exec(line)?.[1] ?? at;
    errors.set(at, `${errors.get(at) ?? ''}${line}\n`.trimStart());
  }
  return errors;
}

const RIGHT = {
  sft: "await train({ method: 'sft', lora: { r: 4 }, data: { source: 'arithmetic' }, sft: { max_steps: 3 } });",
  grpo: "await train({ method: 'grpo', model: { base: 'word-problems' }, data: { source: 'word_problems' }, reward: { rule: { weight: 1 } } });",
  variable:
    "const config: RunConfigInput = { method: 'dpo', data: { train: [{ path: 'a.jsonl', weight: 2 }, 'b.jsonl'] } };\nawait train(config, { output: 'runs/x' });",
  extends: "await train({ extends: 'my_steps', data: { train: 'rows.jsonl' }, sft: { max_steps: 3 } });",
  both: "await train({ extends: 'quickstart_sft', method: 'sft', sft: { max_steps: 3 } });",
  init: "await train({ method: 'pretrain', model: { base: { init: { model_type: 'qwen2' } }, tokenizer: 'bytes' } });",
};

const WRONG: Readonly<Record<string, readonly [string, RegExp]>> = {
  method: ["await train({ method: 'grpoo' });", /'"grpoo"' is not assignable to type '.*"grpo"/],
  none: ["await train({ data: { source: 'arithmetic' } });", /Property '(method|extends)' is missing/],
  key: [
    "await train({ method: 'sft', sft: { max_step: 3 } });",
    /'max_step' does not exist .*|Did you mean to write 'max_steps'/,
  ],
  section: ["await train({ method: 'sft', kto: { beta: 0.1 } });", /'kto' does not exist/],
  nested: [
    "await train({ method: 'sft', data: { source: 'arithmetic', arithmetic: { sample: 3 } } });",
    /'sample' does not exist .*|Did you mean to write 'samples'/,
  ],
  value: ["await train({ method: 'grpo', model: { dtype: 'fp8' } });", /'"fp8"' is not assignable/],
  type: ["await train({ method: 'sft', lora: { r: '4' } });", /'string' is not assignable to type 'number'/],
  probability: [
    "declare const model: Parameters<typeof judgeSteps>[0];\nconst [step] = await judgeSteps(model, '1 + 1', ['2']);\nconst p: number | undefined = step?.probability;",
    /'null' is not assignable to type 'number \| undefined'/,
  ],
};

it('right programs compile, and each mistake is an error that names it', () => {
  const errors = errorsOf({
    ...RIGHT,
    ...Object.fromEntries(Object.entries(WRONG).map(([name, [code]]) => [name, code])),
  });
  for (const name of Object.keys(RIGHT)) expect([name, errors.get(name)]).toEqual([name, '']);
  for (const [name, [, message]] of Object.entries(WRONG)) expect(errors.get(name), name).toMatch(message);
});
