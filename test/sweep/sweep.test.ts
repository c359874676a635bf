// Whole sweeps whose runs are made up: what is started, chosen, compared, kept and refused.
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadRunConfig } from '../../src/methods/config.js';
import { createRun } from '../../src/methods/run.js';
import { dataContent } from '../../src/run/inputs.js';
import { resolveInputs } from '../../src/run/paths.js';
import { type Cell, type CellOutcome, cell } from '../../src/sweep/cells.js';
import { describeSweep } from '../../src/sweep/dry-run.js';
import { type Arm, parseSweep } from '../../src/sweep/file.js';
import type { SweepFolder } from '../../src/sweep/folder.js';
import { formatSweep } from '../../src/sweep/format.js';
import { openSweep, runSweep } from '../../src/sweep/run.js';
import { runSweepFile } from '../../src/sweep/sweep-file.js';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'steptrain-sweep-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const findRecipe = (name: string) => `recipes/${name}.yaml`;

const text = (more = '') => `
recipe: quickstart_sft
set: { data.arithmetic.samples: 40 }
output_dir: ${JSON.stringify(folder)}
arms:
  plain: {}
  tuned: { grid: { sft.learning_rate: [1.0e-4, 2.0e-4, 4.0e-4] } }
select: { on: val.score, seeds: [7] }
seeds: [1, 2, 3]
compare_to: plain
report:
  score: test.score
  loss: { key: log.sft.loss, unit: number }
  tokens: { key: data.tokens, unit: count }
${more}`;

/** Writes what a run writes. The score on validation is best at 2e-4; on test `tuned` is 10 points better, ± 1 by seed. */
async function made(sweepFolder: SweepFolder, cell: Cell): Promise<CellOutcome> {
  const directory = sweepFolder.directory(cell);
  const { config, locate } = await loadRunConfig(
    findRecipe(cell.arm.recipe),
    await sweepFolder.settings(cell),
  );
  if (!existsSync(directory)) {
    const { run } = await createRun(config, locate, { output: directory });
    await run.close();
  }
  const rate = cell.point['sft.learning_rate'] as number | undefined;
  const score = rate === undefined ? 0.5 : 0.6 + (cell.seed - 2) / 100;
  const report = { val: { score: rate === 2e-4 ? 0.9 : 0.2 }, test: { score }, data: { tokens: 5000 } };
  const log = [
    { phase: 'sft', loss: 2 },
    { phase: 'sft', loss: 1, tokens: 5000 },
    { phase: 'test', score },
  ];
  await writeFile(join(directory, 'metrics.jsonl'), log.map((line) => `${JSON.stringify(line)}\n`).join(''));
  await writeFile(join(directory, 'eval.json'), JSON.stringify(report));
  return { status: 'finished' };
}

interface Trial {
  readonly signal?: AbortSignal;
  readonly run?: (folder: SweepFolder, cell: Cell, resume: boolean) => Promise<CellOutcome>;
  readonly jobs?: number;
}

async function sweep(content: string, { signal, run = made, jobs = 1 }: Trial = {}) {
  const started: string[] = [];
  const notes: string[] = [];
  const summary = await runSweep(parseSweep(content, 's.yaml'), {
    findRecipe,
    jobs,
    signal: signal ?? new AbortController().signal,
    note: (line) => notes.push(line),
    starter:
      (sweepFolder) =>
      (cell, { resume }) => {
        started.push(`${cell.id}${resume ? ' resumed' : ''}`);
        return run(sweepFolder, cell, resume);
      },
  });
  return { summary, started, notes, table: formatSweep(summary) };
}

describe('a sweep', () => {
  it('tells of runs whose evaluation warns', async () => {
    const { summary, table } = await sweep(text(), {
      async run(sweepFolder, cell) {
        const outcome = await made(sweepFolder, cell);
        const path = join(sweepFolder.directory(cell), 'eval.json');
        const report = JSON.parse(await readFile(path, 'utf8'));
        const warnings = cell.seed === 2 ? ['AUC 50.5 is chance', 'few steps'] : [];
        await writeFile(path, JSON.stringify({ ...report, warnings }));
        return outcome;
      },
    });
    expect(summary.warnings).toEqual([
      { run: 'plain/seed-2', warning: 'AUC 50.5 is chance' },
      { run: 'tuned/sft.learning_rate=0.0002/seed-2', warning: 'AUC 50.5 is chance' },
    ]);
    expect(table).toContain(
      '2 runs of the table with warnings in eval.json, such as plain/seed-2: AUC 50.5 is chance',
    );
  });

  it('selects on validation, reports on all seeds, and pairs by seed', async () => {
    const { summary, started, table } = await sweep(text());
    expect(started).toHaveLength(3 + 6);
    expect(started.slice(3, 5)).toEqual(['plain/seed-1', 'tuned/sft.learning_rate=0.0002/seed-1']);
    expect(summary.trials.map(({ mean, chosen }) => [mean, chosen])).toEqual([
      [0.2, false],
      [0.9, true],
      [0.2, false],
    ]);
    // The page shows the runs of the table, seed by seed, and none of those that only chose.
    const page = await readFile(join(folder, 'report.html'), 'utf8');
    expect(page).toContain('<p class="hint">6 runs: 2 arms (plain, tuned), 3 seeds (1, 2, 3)</p>');
    const shown = [...page.matchAll(/<th scope="row">([^<]*, seed \d)/g)].map(([, name]) => name);
    expect([...new Set(shown)]).toEqual(
      [1, 2, 3].flatMap((seed) => [`plain, seed ${seed}`, `tuned, seed ${seed}`]),
    );
    expect(page).toContain('Paired differences');
    const [, tuned] = summary.arms;
    expect(tuned?.columns.score?.mean).toBeCloseTo(0.6, 12);
    expect(tuned?.columns.score?.deviation).toBeCloseTo(0.01, 12);
    expect(tuned?.columns.loss?.values).toEqual({ 1: 1, 2: 1, 3: 1 });
    const [score] = summary.differences;
    expect(summary.differences.map(({ column }) => column)).toEqual(['score', 'loss']);
    expect(score).toMatchObject({ arm: 'tuned', to: 'plain', seeds: [1, 2, 3] });
    // t(0.975, 2) = 4.3027, of a standard error of 0.01 / √3.
    expect(score?.interval?.[0]).toBeCloseTo(0.1 - (4.3027 * 0.01) / Math.sqrt(3), 6);
    expect(table).toMatch(/tuned − plain +\| +score, % +\| +\+10\.0 \| +\+7\.5 to \+12\.5 .* higher \|/);
    expect(table).toMatch(/tuned − plain +\| +loss \| +0 \| +– .* the same on every seed: no interval \|/);
    expect(table).toContain('arms were tuned unequally: plain tried 1, tuned tried 3');
    expect(JSON.parse(await readFile(join(folder, 'sweep.json'), 'utf8'))).toEqual(summary);
    expect(await readFile(join(folder, 'sweep.md'), 'utf8')).toBe(`${table}\n`);
  });

  it('keeps finished runs, resumes stopped ones, and tries failed ones again', async () => {
    const stop = new AbortController();
    const first = await sweep(text(), {
      signal: stop.signal,
      async run(sweepFolder, cell) {
        const outcome = await made(sweepFolder, cell);
        if (cell.id !== 'plain/seed-1') return outcome;
        stop.abort();
        await rm(join(sweepFolder.directory(cell), 'eval.json'));
        return { status: 'stopped' };
      },
    });
    expect(first.started).toHaveLength(4);
    expect(first.table).toContain('6 runs have not ended; the same command goes on');

    const second = await sweep(text(), {
      jobs: 3,
      run: async (sweepFolder, cell) =>
        cell.id.startsWith('tuned') && cell.seed === 3
          ? { status: 'failed', reason: 'loss is not finite' }
          : made(sweepFolder, cell),
    });
    expect(second.started[0]).toBe('plain/seed-1 resumed');
    expect(second.started).toHaveLength(6);
    expect(second.table).toContain('tuned/sft.learning_rate=0.0002/seed-3 failed: loss is not finite');
    expect(second.summary.differences[0]?.seeds).toEqual([1, 2]);
    expect(second.table).toMatch(/\(2 of 3\)/);

    const third = await sweep(text());
    expect(third.started).toEqual(['tuned/sft.learning_rate=0.0002/seed-3']);
    expect((await sweep(text())).started).toEqual([]);
  });

  it('does not choose a point of which a run failed', async () => {
    const { summary } = await sweep(text(), {
      run: async (sweepFolder, cell) =>
        cell.point['sft.learning_rate'] === 2e-4
          ? { status: 'failed', reason: 'diverged' }
          : made(sweepFolder, cell),
    });
    expect(summary.trials.find(({ chosen }) => chosen)?.point).toEqual({ 'sft.learning_rate': 1e-4 });
  });

  it('names a run that ended without the number that selects, and does not choose its point', async () => {
    const { summary, table } = await sweep(text(), {
      async run(sweepFolder, cell) {
        const outcome = await made(sweepFolder, cell);
        const path = join(sweepFolder.directory(cell), 'eval.json');
        if (cell.point['sft.learning_rate'] === 2e-4) await writeFile(path, '{"test": {"score": 1}}');
        return outcome;
      },
    });
    expect(summary.trials.map(({ chosen }) => chosen)).toEqual([true, false, false]);
    expect(table).toContain(
      'tuned/sft.learning_rate=0.0002/seed-7 has ended without val.score, so that its point is not selected',
    );
  });

  it('reads a key of the log from training before evaluations, whose metrics may have its name', async () => {
    const loss = async (key: string) => {
      const { summary } = await sweep(text().replace('log.sft.loss', key), {
        async run(sweepFolder, cell) {
          const outcome = await made(sweepFolder, cell);
          const lines = [
            { phase: 'sft', phase_step: 1, loss: 1, tokens: 5000 },
            { phase: 'sft', phase_step: 1, loss: 7, auc: 0.5 },
            { phase: 'test' },
          ].map((line) => `${JSON.stringify(line)}\n`);
          await writeFile(join(sweepFolder.directory(cell), 'metrics.jsonl'), lines.join(''));
          return outcome;
        },
      });
      return summary.arms[0]?.columns.loss?.mean;
    };
    expect(await loss('log.sft.loss')).toBe(1);
    expect(await loss('log.sft.auc')).toBe(0.5);
    expect(await loss('log.sft.validation/loss')).toBe(7);
  });

  it('refuses runs that the file describes otherwise now, and takes new ones', async () => {
    await sweep(text());
    await expect(sweep(text().replace('samples: 40', 'samples: 41'))).rejects.toThrow(
      /s\.yaml no longer describes a run that was made: .*data\.arithmetic\.samples is 41 and was/,
    );
    expect(
      (await sweep(text().replace('samples: 40', 'samples: 40, run.threads: 1, sft.save_steps: 5'))).started,
    ).toEqual([]);
    const more = text()
      .replace('[1, 2, 3]', '[1, 2, 3, 4]')
      .replace('  plain: {}', '  plain: {}\n  r2: { set: { lora.r: 2 } }');
    expect((await sweep(more)).started).toHaveLength(2 + 4);
    const fewer = await sweep(text());
    expect(fewer.notes).toEqual([
      expect.stringMatching(/^6 runs in .* are not in s\.yaml and stay out of its table/),
    ]);
  });

  it('refuses reasons that were made with other settings or data, whatever runs there are', async () => {
    const data = join(folder, 'rows.jsonl');
    await writeFile(data, JSON.stringify({ question: '1?', steps: ['1', '2'], labels: [1, 0] }));
    const linked = text().replace(
      '  plain: {}',
      `  R: { from: plain, rationales: {}, set: { data.source: stepwise, data.train: ${JSON.stringify(data)}, data.balance: none } }\n  plain: {}`,
    );
    const opened = (content = linked) => openSweep(parseSweep(content, 's.yaml'), findRecipe);
    const found = parseSweep(linked, 's.yaml');
    const [arm] = found.arms as [Arm];
    const { config, locate } = await loadRunConfig(
      findRecipe(arm.recipe),
      await (await opened()).ownSettings(cell(arm, {}, 1)),
    );
    const { data: read, ...others } = await resolveInputs(config, locate);
    const directory = join(folder, 'R/rationales/seed-1');
    await mkdir(directory, { recursive: true });
    const settings = {
      data: read,
      prompt: (others as { prompt?: unknown }).prompt,
      attempts: 4,
      temperature: 0.7,
    };
    await writeFile(
      join(directory, 'settings.json'),
      JSON.stringify({ ...settings, files: await dataContent(read) }),
    );
    await opened();
    await expect(opened(linked.replace('balance: none', 'balance: upsample'))).rejects.toThrow(
      /no longer describes the reasons in .*: they were made with other data; restore it, or give/,
    );
    await expect(opened(linked.replace('rationales: {}', 'rationales: { k: 5 }'))).rejects.toThrow(
      /with k 4/,
    );
    await writeFile(data, JSON.stringify({ question: '1?', steps: ['1', '3'], labels: [1, 0] }));
    await expect(opened()).rejects.toThrow(/they were made with other content of the data; restore it/);
  });

  it('checks every run before the first, and names the keys that there are', async () => {
    await expect(sweep(text('grid: { sft.learning_rte: [1] }'))).rejects.toThrow(/select|learning_rte/);
    const wrong = text().replace('  plain: {}', '  plain: {}\n  bad: { set: { lora.r: 0 } }');
    await expect(sweep(wrong)).rejects.toThrow(/lora\.r expects/);
    expect(existsSync(join(folder, 'sweep.json'))).toBe(false);
    await expect(sweep(text().replace('test.score', 'tset.score'))).rejects.toThrow(
      /no finished run reports tset\.score; there are val\.score, test\.score/,
    );
  });

  it('of a file gives its lines to the log of a program', async () => {
    await sweep(text());
    const file = join(folder, 's.yaml');
    await writeFile(file, text().replace(/^(?: {2}tuned|select|compare_to): .*\n/gm, ''));
    for (const jobs of [0, Number.NaN])
      await expect(runSweepFile(file, { jobs })).rejects.toThrow(
        'jobs: expected a whole number of at least 1',
      );
    const lines: string[] = [];
    const { arms, unfinished } = await runSweepFile(file, {
      log: (line, level) => lines.push(`${level}: ${line}`),
    });
    expect([arms.map(({ arm }) => arm), unfinished]).toEqual([['plain'], []]);
    expect(lines).toEqual([expect.stringMatching(/^info: 6 runs in .* stay out of its table: tuned/)]);
  });

  it('begins runs from those of another arm, with the tokens that a third has left them', async () => {
    const linked = text()
      .replace(
        '  plain: {}',
        '  more: { from: plain, tokens_of: tuned, set: { sft.eval_steps: 7 } }\n  plain: {}',
      )
      .replace('{ key: data.tokens, unit: count }', '{ key: total_tokens, unit: count }');
    const given = new Map<string, readonly string[]>();
    const budgets: Record<string, number> = { plain: 1000, tuned: 5000, more: 4000 };
    const run = async (sweepFolder: SweepFolder, each: Cell): Promise<CellOutcome> => {
      const { needs, arm } = each;
      given.set(
        each.id,
        await sweepFolder.settings({ ...each, needs: { tokensOf: needs.tokensOf, from: needs.from } }),
      );
      const outcome = await made(sweepFolder, { ...each, needs: {} });
      const path = join(sweepFolder.directory(each), 'eval.json');
      const report = JSON.parse(await readFile(path, 'utf8'));
      report.data.trained_tokens = budgets[arm.name];
      await writeFile(path, JSON.stringify(report));
      await mkdir(join(sweepFolder.directory(each), 'adapter'));
      return outcome;
    };
    const { summary, started } = await sweep(linked, { run, jobs: 2 });
    expect(started.indexOf('plain/seed-1')).toBeLessThan(started.indexOf('more/seed-1'));
    expect(started.indexOf('tuned/sft.learning_rate=0.0002/seed-1')).toBeLessThan(
      started.indexOf('more/seed-1'),
    );
    expect(given.get('more/seed-2')).toEqual(
      expect.arrayContaining([`model.adapter="${join(folder, 'plain/seed-2')}"`, 'run.max_tokens=4000']),
    );
    expect(summary.arms.map(({ columns }) => columns.tokens?.mean)).toEqual([5000, 1000, 5000]);
    expect(summary.arms[0]).toMatchObject({ from: 'plain', tokensOf: 'tuned' });
    const lines = await describeSweep(parseSweep(linked.replace(folder, join(folder, 'new')), 's.yaml'), {
      findRecipe,
      jobs: 1,
    });
    expect(lines[0]).toMatch(/^more: quickstart_sft with .*; from plain; as many tokens as tuned$/);
  });

  it('fails what needs a run that failed, and what would get no tokens', async () => {
    const linked = text().replace('  plain: {}', '  more: { from: plain, tokens_of: tuned }\n  plain: {}');
    const { summary } = await sweep(linked, {
      run: async (sweepFolder, each) =>
        each.id === 'plain/seed-2'
          ? { status: 'failed', reason: 'full disk' }
          : made(sweepFolder, { ...each, needs: {} }),
    });
    const failed = Object.fromEntries(summary.unfinished.map(({ run, failed }) => [run, failed]));
    expect(failed).toEqual({
      'plain/seed-2': 'full disk',
      'more/seed-2': 'plain/seed-2, which it needs, has not ended',
    });
  });

  it('leaves settings of other methods out of an arm, and refuses those of none', async () => {
    const mixed = text().replace('samples: 40 }', 'samples: 40, verdict_dpo.beta: 0.3 }');
    await expect(sweep(mixed)).rejects.toThrow(/set: no arm's method has the section of verdict_dpo\.beta/);
    const both = mixed.replace('  plain: {}', '  plain: { set: { method: verdict_dpo } }');
    const given: Record<string, readonly string[]> = {};
    await sweep(both, {
      async run(sweepFolder, each) {
        given[each.arm.name] = await sweepFolder.settings(each);
        return { status: 'failed', reason: 'not run' };
      },
    });
    expect(given.plain).toContain('verdict_dpo.beta=0.3');
    expect(given.tuned?.join()).not.toContain('beta');
  });

  it('tells beforehand what it would do', async () => {
    const before = await describeSweep(parseSweep(text(), 's.yaml'), { findRecipe, jobs: 1 });
    expect(before.join('\n')).toMatch(
      /9 runs in .*: 3 select, 6 are reported .* 0 finished, 0 to go on with, 9 new\ntime: not known/,
    );
    await sweep(text());
    const more = parseSweep(text().replace('[1, 2, 3]', '[1, 2, 3, 4]'), 's.yaml');
    const after = await describeSweep(more, { findRecipe, jobs: 1 });
    expect(after.join('\n')).toMatch(
      /9 finished, 0 to go on with, 2 new\ntime: about \d+s for the 2 left, by the 9/,
    );
  });
});
