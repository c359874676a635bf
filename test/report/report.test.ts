// The page of a run: what it reads, what it shows, what it says of missing and damaged files.
import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { collectRun } from '../../src/report/collect.js';
import { curves } from '../../src/report/curves.js';
import { decimate } from '../../src/report/decimate.js';
import { html } from '../../src/report/html.js';
import { typeset } from '../../src/report/maths.js';
import { MetricLog } from '../../src/report/metric-log.js';
import { renderRun } from '../../src/report/run-page.js';
import { rankTotals } from '../../src/report/sections/processes.js';
import { chosenSolutions, confusionOf, outcomeOf } from '../../src/report/solutions.js';
import { ticks } from '../../src/report/svg/axes.js';
import { writeReport } from '../../src/report/write.js';
import { makeRun } from './run-fixture.js';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-report-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('the metrics of a run', () => {
  it('are columns by phase, with evaluations apart from training', () => {
    const log = new MetricLog(join(makeRun(join(folder, 'columns')), 'metrics.jsonl'));
    expect(log.read()).toBe(true);
    expect(log.phases.map(({ name }) => name)).toEqual(['sft', 'ppo', 'test']);
    expect(log.phase('sft')?.columns.get('loss')?.value).toEqual([0.75, 0.5]);
    expect(log.phase('sft')?.columns.get('validation/acc_pos')?.value).toEqual([0.5, 0.8]);
    expect(log.phase('ppo')?.columns.get('acc_pos')?.value).toHaveLength(30);
    expect(log.last('test', 'f1_macro')).toBe(0.75);
    expect(log.step).toBe(50);
  });

  it('of several processes tell how fast each was and how long it waited', async () => {
    const path = makeRun(join(folder, 'processes'));
    expect(renderRun(await collectRun(path))).not.toContain('id="processes"');
    const line = (step: number, seconds: number, waited: readonly number[]) =>
      JSON.stringify({
        step,
        phase: 'ppo',
        phase_step: step,
        tokens: 1,
        logged_seconds: seconds,
        ...Object.fromEntries(
          waited.flatMap((each, rank) => [
            [`rank_${rank}_tokens_per_second`, 100 * (rank + 1)],
            [`rank_${rank}_waited_seconds`, each],
          ]),
        ),
      });
    appendFileSync(join(path, 'metrics.jsonl'), `${line(51, 2, [0.5, 0])}\n${line(52, 2, [1.5, 0.1])}\n`);
    const run = await collectRun(path);
    expect(rankTotals(run)).toEqual([
      { rank: 0, tokens: 400, waited: 2, seconds: 4 },
      { rank: 1, tokens: 800, waited: 0.1, seconds: 4 },
    ]);
    const page = renderRun(run);
    expect(page).toContain('rank 0, 100 tokens/s');
    expect(page).toContain('50.0 %');
    expect(page).toMatch(/Rank 1 waited least \(2.5 %\)/);
    expect(page).not.toMatch(/mean seconds of the logged steps:[^.]*(rank|logged)/);
  });

  it('are read on from where the file grew, and again where it was cut', () => {
    const path = join(folder, 'grows.jsonl');
    const line = (step: number) =>
      `${JSON.stringify({ step, phase: 'sft', phase_step: step, loss: step, tokens: 1 })}\n`;
    writeFileSync(path, line(1));
    const log = new MetricLog(path);
    log.read();
    const [half, rest] = [line(2).slice(0, 12), line(2).slice(12)];
    appendFileSync(path, half);
    log.read();
    expect(log.phase('sft')?.columns.get('loss')?.value).toEqual([1]);
    appendFileSync(path, `${rest}no JSON\n${line(3)}`);
    log.read();
    expect(log.phase('sft')?.columns.get('loss')?.value).toEqual([1, 2, 3]);
    expect(log.damaged).toBe(1);
    expect(log.read()).toBe(false);
    truncateSync(path, line(1).length);
    log.read();
    expect(log.phase('sft')?.columns.get('loss')?.value).toEqual([1]);
    expect(log.damaged).toBe(0);
  });

  it('lose no peak and no end where there are more than a plot can show', () => {
    const y = Array.from({ length: 50_000 }, (_, i) =>
      i === 31_234 ? 99 : i === 40_001 ? -99 : Math.sin(i),
    );
    const points = decimate(
      y.map((_, i) => i + 1),
      y,
      1000,
    );
    expect(points.x).toHaveLength(1000);
    expect(points.x.at(-1)).toBe(50_000);
    expect(Math.max(...(points.high ?? []))).toBe(99);
    expect(Math.min(...(points.low ?? []))).toBe(-99);
    // Buckets are of one size, so the mean of their means is the mean.
    const mean = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / values.length;
    expect(mean(points.y)).toBeCloseTo(mean(y), 5);
  });

  it('share a plot by what they measure, and rounds of one stage follow each other', () => {
    const path = join(folder, 'rounds.jsonl');
    const rows = [1, 2].flatMap((round) =>
      [1, 2].map((i) => ({
        step: 2 * (round - 1) + i,
        phase: `train-${round}`,
        phase_step: i,
        loss: i,
        other: 7,
        tokens: 1,
      })),
    );
    writeFileSync(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
    const log = new MetricLog(path);
    log.read();
    const [group, none] = curves(log);
    expect(none).toBeUndefined();
    expect(group?.plots.map(({ id }) => id)).toEqual(['train/loss', 'train/other']);
    expect(group?.plots[0]?.series).toEqual([{ key: 'loss', x: [1, 2, 3, 4], y: [1, 2, 1, 2] }]);
    expect(group?.plots.map(({ steps }) => steps)).toEqual([4, 4]);
  });

  it('show the loss of a reward network among losses, not among rewards', () => {
    const path = join(folder, 'network.jsonl');
    writeFileSync(
      path,
      '{"step":1,"phase":"ppo","phase_step":1,"tokens":1,"loss":1,"reward_mean":0.5,"reward_network_loss":0.7}\n',
    );
    const log = new MetricLog(path);
    log.read();
    expect(curves(log)[0]?.plots.map(({ id, series }) => [id, series[0]?.key])).toEqual([
      ['ppo/loss', 'loss'],
      ['ppo/reward', 'reward_mean'],
      ['ppo/terms', 'reward_network_loss'],
    ]);
  });
});

describe('judged solutions', () => {
  it('count as the evaluation counts them', async () => {
    const { report, solutions } = await collectRun(makeRun(join(folder, 'counts')));
    const { tp, fn, fp, tn } = confusionOf(solutions);
    expect(tp + fn + fp + tn).toBe(report?.metrics.n);
    expect(tp / (tp + fn)).toBeCloseTo(report?.metrics.acc_pos as number, 12);
    expect(tn / (tn + fp)).toBeCloseTo(report?.metrics.acc_neg as number, 12);
  });

  it('are chosen with mistakes of both kinds and without', async () => {
    const { solutions } = await collectRun(makeRun(join(folder, 'chosen')));
    const chosen = chosenSolutions(solutions);
    const outcomes = new Set(chosen.flatMap(({ steps }) => steps.map(outcomeOf)));
    expect(outcomes).toEqual(new Set(['right', 'missed', 'false alarm']));
    expect(chosen.some(({ steps }) => steps.every((step) => outcomeOf(step) === 'right'))).toBe(true);
    expect(new Set(chosen).size).toBe(chosen.length);
  });
});

describe('a page', () => {
  it('has every section of what the run wrote', async () => {
    const page = renderRun(await collectRun(makeRun(join(folder, 'whole'))));
    for (const id of [
      'results',
      'learning',
      'judgement',
      'rewards',
      'rollouts',
      'solutions',
      'memory',
      'configuration',
    ])
      expect(page).toContain(`<section id="${id}"`);
    expect(page).toContain('<mfrac>');
    // A stage is called there what the log calls it.
    expect(page).toContain('peak of ppo');
    // No events were written: the section says so instead of showing zeros.
    expect(page).toMatch(/<b>Time\.<\/b> The wall times stand in the TensorBoard events/);
  });

  it('shows the reason before each verdict, of rollouts and of judged steps', async () => {
    const path = makeRun(join(folder, 'reasons'));
    const reasoned = (name: string, change: (row: Record<string, unknown>) => object) => {
      const rows = readFileSync(join(path, name), 'utf8').trim().split('\n');
      writeFileSync(
        join(path, name),
        rows.map((row) => `${JSON.stringify(change(JSON.parse(row)))}\n`).join(''),
      );
    };
    reasoned('verdicts.jsonl', (row) => ({ ...row, reason: 'judged by <19>' }));
    reasoned('samples.jsonl', (row) => {
      const [answer, ...others] = (row.answers ?? []) as object[];
      return { ...row, ...(answer ? { answers: [{ ...answer, reason: 'rolled by <18>' }, ...others] } : {}) };
    });
    const page = renderRun(await collectRun(path));
    expect(page).toContain('<span class="hint">reason: judged by &lt;19&gt;</span>');
    expect(page).toMatch(/<th scope="col">reason<\/th>.*<td>rolled by &lt;18&gt;<\/td>/s);
    const without = renderRun(await collectRun(makeRun(join(folder, 'no-reasons'))));
    expect(without).not.toMatch(/reason: |<th scope="col">reason/);
  });

  it('shows an episode turn by turn: call, what came back, reward and advantage', async () => {
    const path = makeRun(join(folder, 'episodes'));
    const turns = [
      {
        text: 'I look.\n→ read_note({})',
        results: ['← tool: It is in <box> 2.'],
        reward: 0.25,
        advantage: -0.5,
      },
      { text: 'Box 2.', results: [], reward: 0.75 },
    ];
    const answer = {
      text: 'whole',
      turns,
      turn_rewards: [null, 1],
      tokens: 9,
      reward: 1,
      advantage: 0.7,
      rewards: { 8: 1 },
    };
    writeFileSync(
      join(path, 'samples.jsonl'),
      `${JSON.stringify({ iteration: 0, problem: 'Where?', solutions: [answer] })}\n`,
    );
    writeFileSync(join(path, 'config.yaml'), 'method: ppo\nppo:\n  algorithm: turn_grpo\n');
    const page = renderRun(await collectRun(path));
    expect(page).toContain('<dt>Method</dt><dd>turn_grpo</dd>');
    const [, shown = ''] = page.split('Under a solution its rewards by token');
    expect(shown).toContain('beside the reward by one number, such as its lowest step.');
    expect(shown).toMatch(
      /<li><span class="text">I look\.\n→ read_note\(\{\}\)<\/span><br><span class="hint">← tool: It is in &lt;box&gt; 2\.<\/span>\s*<div class="judgement"><span class="tag">reward 0\.25<\/span><span class="tag">advantage −0\.5<\/span><\/div><\/li><li><span class="text">Box 2\.<\/span>\s*<div class="judgement"><span class="tag">reward 0\.75<\/span><\/div><\/li>/,
    );
    expect(shown).not.toContain('whole');
  });

  it('shows what a run that solves problems has in eval.json, a column for each model', async () => {
    const path = makeRun(join(folder, 'solving'));
    const solved = (value: number) => ({ all: { 'pass@1': { value, interval: [value, 1] } } });
    const models = { before: solved(0.5), 'after round 1': solved(0.75) };
    const metrics = { 'pass@1': 0.75 };
    const data = { problems: 40, trained_tokens: 1000 };
    writeFileSync(
      join(path, 'eval.json'),
      JSON.stringify({ method: 'ppo', unit: 'problems', data, metrics, models }),
    );
    const run = await collectRun(path);
    expect(run.damaged).toEqual([]);
    const page = renderRun(run);
    const cells = ['40 problems, %', 'after round 1', '75.0 (75.0 to 100.0)'];
    expect(cells.filter((cell) => !page.includes(cell))).toEqual([]);
  });

  it('shows what no other section does, of any shape, and all of an eval.json of another kind', async () => {
    const path = makeRun(join(folder, 'nested'));
    const file = join(path, 'eval.json');
    const before = JSON.parse(readFileSync(file, 'utf8'));
    const page = async (content: object) => {
      writeFileSync(file, JSON.stringify(content));
      const text = renderRun(await collectRun(path));
      return /<section id="further".*?<\/section>/s.exec(text)?.[0] ?? '';
    };
    const known = await page({ ...before, data: { files: { train: { path: 'a.csv', rows: 12_345 } } } });
    expect(known).toContain('data</summary>');
    expect(known).toMatch(/&quot;path&quot;: &quot;a\.csv&quot;,\s+&quot;rows&quot;: 12345/);
    // The results stand in their own sections, once.
    expect(known).not.toContain('metrics</summary>');
    const other = await page({
      method: 'mine',
      hostile: { '<b>': '<script>' },
      long: Array.from({ length: 6000 }, (_, i) => i),
    });
    expect(other).toContain('{\n  &quot;&lt;b&gt;&quot;: &quot;&lt;script&gt;&quot;\n}');
    expect(other).toContain('… more in eval.json');
  });

  it('names what a run without verdicts does not have', async () => {
    const path = makeRun(join(folder, 'unfinished'), { isFinished: false });
    rmSync(join(path, 'samples.jsonl'));
    const run = await collectRun(path);
    expect(run.status).toBe('stopped');
    const page = renderRun(run);
    expect(page).not.toContain('<section id="judgement"');
    expect(page).toMatch(/Sample solutions\.<\/b> verdicts\.jsonl is written/);
    expect(page).toMatch(/Rewards\.<\/b> samples\.jsonl has/);
  });

  it('is written although files are damaged, and says which', async () => {
    const path = makeRun(join(folder, 'damaged'));
    for (const name of ['eval.json', 'verdicts.jsonl', 'memory.json', 'samples.jsonl'])
      writeFileSync(join(path, name), '{"half": ');
    appendFileSync(join(path, 'metrics.jsonl'), 'not JSON\n');
    const page = readFileSync(await writeReport([path]), 'utf8');
    for (const name of ['eval.json', 'verdicts.jsonl', 'memory.json'])
      expect(page).toContain(`${name} is left out: `);
    expect(page).toContain('metrics.jsonl: 1 lines cannot be read');
  });

  it('is refused in a sentence for what is no run', async () => {
    await expect(writeReport([join(folder, 'nowhere')])).rejects.toThrow(
      /there is no run directory .*nowhere/,
    );
    mkdirSync(join(folder, 'nothing'));
    await expect(writeReport([join(folder, 'nothing')])).rejects.toThrow(
      /nothing is not a run directory: it has no config\.yaml/,
    );
  });
});

describe('a comparison', () => {
  it('has results side by side, what differs, and a line for each run', async () => {
    const [a, b] = [
      makeRun(join(folder, 'sweep', 'arm', 'a')),
      makeRun(join(folder, 'sweep', 'arm', 'b'), { steps: 10 }),
    ];
    writeFileSync(
      join(b, 'config.yaml'),
      readFileSync(join(a, 'config.yaml'), 'utf8').replace('seed: 42', 'seed: 7'),
    );
    const compared = await writeReport([a, b]);
    expect(compared).toBe(join(folder, 'sweep', 'arm', 'report.html'));
    const page = readFileSync(compared, 'utf8');
    expect(page).toContain('<th scope="row"><code>run.seed</code></th><td>42</td><td>7</td>');
    expect(page).not.toContain('<code>run.device</code>');
    const data = JSON.parse(/id="page-data">(.*)<\/script><script>/.exec(page)?.[1] ?? '{}') as {
      plots: { id: string; steps: number; series: { key: string; x: number[] }[] }[];
    };
    const kl = data.plots.find(({ id }) => id === 'ppo/kl/kl_k3');
    expect(kl?.steps).toBe(30);
    expect(kl?.series.map(({ key, x }) => [key, x.length])).toEqual([
      ['a', 30],
      ['b', 10],
    ]);
  });

  it('has the table of a sweep', async () => {
    makeRun(join(folder, 'swept', 'a', 'seed-1'));
    const values = { 1: 0.7, 2: 0.8 };
    const columns = {
      'F1 macro': { values, n: 2, mean: 0.75, deviation: 0.07 },
      KL: { values: { 1: 0.02, 2: 0.04 }, n: 2, mean: 0.03, deviation: 0.014 },
    };
    const differences = [{ arm: 'b', to: 'a', column: 'F1 macro', n: 2, mean: 0.1, interval: [-0.2, 0.4] }];
    const summary = {
      report: [
        { title: 'F1 macro', key: 'metrics.f1_macro', unit: 'percent' },
        { title: 'KL', key: 'log.ppo.kl_k3', unit: 'number' },
      ],
      arms: [
        { arm: 'a', columns },
        { arm: '<b>', columns },
      ],
      differences,
      unfinished: [{ run: 'x' }],
    };
    writeFileSync(join(folder, 'swept', 'sweep.json'), JSON.stringify(summary));
    const page = readFileSync(await writeReport([join(folder, 'swept')]), 'utf8');
    expect(page).toContain('<th scope="row">&lt;b&gt;</th><td class="n">75.0</td>');
    expect(page).toContain('seed 2: 80.0');
    // A column in its own unit, though its values lie between 0 and 1.
    expect(page).toContain('<th scope="row">a</th><td class="n">0.03</td>');
    expect(page).toContain(
      '<th scope="row">b − a</th><td class="n">+10.0</td><td class="n">−20.0 to +40.0</td>',
    );
    expect(page).toContain('no difference shown');
    expect(page).toContain('<title>Sweep swept · steptrain</title>');
    expect(page).toContain('1 run has not ended');
  });
});

describe('text on a page', () => {
  it('is never markup', () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        expect(html`${text}`.text).not.toMatch(/[<>"']/);
      }),
    );
  });

  it('has its formulas typeset and its amounts of money left alone', () => {
    expect(typeset('so \\(x^2\\) and $\\sqrt{2}$').text).toMatch(
      /^so <math>.*<\/math> and <math>.*<msqrt>.*<\/math>$/,
    );
    expect(typeset('Tom has $5 and Ann $6.').text).toBe('Tom has $5 and Ann $6.');
    expect(typeset('\\[\\frac{1}{2}\\]').text).toContain('display="block"');
    // What is no TeX stays as it was written.
    expect(typeset('a $\\nonsense{$ b').text).toBe('a $\\nonsense{$ b');
  });
});

it('ticks of an axis are round and within it', () => {
  expect(ticks({ min: 0, max: 1 })).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
  // Steps below the last bit of a number: counting them would never end.
  expect(ticks({ min: 1, max: 1 + Number.EPSILON })).toEqual([1]);
  fc.assert(
    fc.property(
      fc.double({ min: -1e6, max: 1e6, noNaN: true }),
      fc.double({ min: 1e-3, max: 1e6, noNaN: true }),
      (min, span) => {
        const found = ticks({ min, max: min + span });
        expect(found.length).toBeGreaterThan(1);
        expect(found.length).toBeLessThan(12);
      },
    ),
  );
});
