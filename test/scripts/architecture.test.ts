// What scripts/architecture.mjs counts, on files of a few lines.
import { expect, it } from 'vitest';

type Sources = ReadonlyMap<string, unknown>;
type Measure = (sources: Sources) => string[];

const load = (name: string) =>
  import(new URL(`../../scripts/architecture/${name}.mjs`, import.meta.url).href);
const { parsed }: { parsed(texts: Record<string, string>): Sources } = await load('sources');
const { circles }: { circles: Measure } = await load('circles');
const { scorers }: { scorers: Measure } = await load('scorers');
const { methodBranches }: { methodBranches: Measure } = await load('method-branches');
const { publicNames }: { publicNames: Measure } = await load('public-names');
const { formerNames, vagueComments }: Record<string, Measure> = await load('wording');
const { backArrows }: { backArrows: Measure } = await load('rooms');
const { topFiles }: { topFiles(sources: Sources, room: string): string[] } = await load('rooms');

const places = (lines: readonly string[]) => lines.map((line) => line.split(': ')[0]);

it('finds circles by values, types, re-exports, dynamic imports and types of imports', () => {
  const back = [
    "import { a } from './a.js';",
    "import type { A } from './a.js';",
    "export { a } from './a.js';",
    "const a = await import('./a.js');",
    "type A = import('./a.js').A;",
  ];
  for (const line of back) {
    const found = circles(
      parsed({
        'src/a.ts': "import { b } from './b/b.js';",
        'src/b/b.ts': `import '../c.js'`,
        'src/c.ts': line,
      }),
    );
    expect(found, line).toHaveLength(1);
    expect(found[0]).toContain('src/a.ts: it imports itself by src/b/b.ts → src/c.ts → src/a.ts (3 files)');
  }
  const [tree, twice] = [
    { 'src/a.ts': "import './b.js';", 'src/b.ts': "import 'node:fs';" },
    "import './b.js'; import './c.js';",
  ];
  expect(circles(parsed(tree))).toEqual([]);
  expect(circles(parsed({ 'src/a.ts': twice, 'src/b.ts': "import './c.js';", 'src/c.ts': '' }))).toEqual([]);
});

it('finds interfaces for scoring that do not extend the one', () => {
  const found = scorers(
    parsed({
      'src/scoring/scorer.ts': 'export interface Scorer { score(): number }',
      'src/a.ts': [
        'interface OwnScorer extends Scorer { more(): void }',
        'interface FarScorer extends OwnScorer { further(): void }',
        "type PartOfJudge = Pick<Scorer, 'score'>;",
        'interface LikelihoodJudge { readonly metrics: number }',
        'interface StepJudge { judge(): number }',
        'type PairJudge = (text: string) => number;',
        'class OldVerifier { verify() {} }',
        'interface OpenRewardModel extends StepJudge { name: string }',
        'type FieldScorer = { readonly score: () => number } & { name: string };',
        'interface StepScorers { score(): number }',
      ].join('\n'),
      'src/b.ts': 'interface Scorer { score(): number }',
    }),
  );
  // One of the same name elsewhere is another one.
  expect(places(found).sort()).toEqual([
    'src/a.ts:5',
    'src/a.ts:6',
    'src/a.ts:7',
    'src/a.ts:8',
    'src/a.ts:9',
    'src/b.ts:1',
  ]);
});

it("finds what branches on a method's name", () => {
  const found = methodBranches(
    parsed({
      'src/methods/table.ts':
        "export const methods = { sft: 1, ppo: { ...x } } as const; methods['a'] === config.method;",
      'src/a.ts': [
        "if (config.method === 'sft') a();",
        "if ('ppo' !== method) a();",
        "switch (open.config.method) { case 'sft': case 'ppo': break; case 'other': }",
        "if (['sft', 'ppo'].includes(config.method)) a();",
        "if ((config as Run)['method'] == 'ppo') a();",
        "if (request.method === 'GET' || found.method === 'boxed' || config.name === 'sft') a();",
      ].join('\n'),
    }),
  );
  expect(places(found)).toEqual([
    'src/a.ts:1',
    'src/a.ts:2',
    'src/a.ts:3',
    'src/a.ts:3',
    'src/a.ts:4',
    'src/a.ts:5',
  ]);
});

it('counts the names of the main entry, not those of the entries that it passes on', () => {
  const index =
    "export { a, type B as C } from './a.js';\nexport * from './ops.js';\nexport * as d from './d.js';";
  expect(publicNames(parsed({ 'src/entries/index.ts': index }))).toHaveLength(3);
});

it('finds former names, comments without a verb, and files at the top of src/train', () => {
  const sources = parsed({
    'src/train/a.ts':
      '// Of a run: its name.\nexport const a = 1; // Of the rest.\n/** Returns what is left. */\n/**\n * What is left.\n */\n// As `a`,\n// which is 1.\n',
    'src/train/policy/b.ts': "import './former-names.js';\n",
  });
  expect(places(vagueComments!(sources))).toEqual([
    'src/train/a.ts:1',
    'src/train/a.ts:2',
    'src/train/a.ts:4',
    'src/train/a.ts:7',
  ]);
  expect(places(formerNames!(sources))).toEqual(['src/train/policy/b.ts:1']);
  expect(topFiles(sources, 'train')).toHaveLength(1);
});

it('finds imports of a room above, and files in no room', () => {
  const found = backArrows(
    parsed({
      'src/cli/a.ts': "import '../train/b.js'; import './c.js';",
      'src/cli/c.ts': '',
      'src/train/b.ts': "import type { C } from '../cli/c.js'; import '../ops/d.js'; import '../e.js';",
      'src/ops/d.ts': '',
      'src/e.ts': "import './ops/d.js';",
    }),
  );
  expect(places(found)).toEqual(['src/train/b.ts', 'src/train/b.ts', 'src/e.ts']);
});
