// The pages in Chromium: desk and phone, light and dark, keyboard, contrast, and a run of 50,000 logged steps.
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { writeReport } from '../../src/report/write.js';
import { startUi } from '../../src/ui/server.js';
import { PATIENCE_MS } from '../patience.js';
import { makeRun } from './run-fixture.js';

const CHROMIUM = [process.env.STEPTRAIN_CHROMIUM, '/usr/bin/chromium', '/usr/bin/google-chrome'].find(
  (path) => path !== undefined && existsSync(path),
);
if (CHROMIUM === undefined)
  console.warn(
    'no Chromium: the tests of the pages in a browser are skipped; apt-get install chromium, or set STEPTRAIN_CHROMIUM',
  );

const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');
/** Plots of the page that nothing has drawn. */
const UNDRAWN =
  "[...document.querySelectorAll('[data-plot]')].filter((plot) => !plot.querySelector('canvas')).length";
/** A log of 180 steps with one evaluation, after the 90th. */
const SINGLE = Array.from({ length: 180 }, (_, i) => [
  { step: i + 1, phase: 'sft', phase_step: i + 1, loss: 1 / (i + 1), tokens: i },
  ...(i === 89 ? [{ step: 90, phase: 'sft', phase_step: 90, accuracy: 0.85 }] : []),
])
  .flat()
  .map((row) => `${JSON.stringify(row)}\n`);
/** Keeps the texts that each plot writes. */
const KEEP_TEXTS = `window.texts = {};
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    const plot = this.canvas.closest('[data-plot]')?.dataset.plot;
    (window.texts[plot] ??= []).push(text);
    return fillText.call(this, text, ...place);
  };`;
const WIDTHS = { desk: 1280, phone: 390 } as const;

describe.skipIf(CHROMIUM === undefined)('in a browser', () => {
  let folder: string;
  let browser: Browser;
  const addresses: Record<string, string> = {};
  let stopUi = async () => {};

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'steptrain-pages-'));
    const runs = join(folder, 'runs');
    for (const [name, steps] of [
      ['one', 40],
      ['long', 50_000],
    ] as const)
      makeRun(join(runs, name), { steps });
    writeFileSync(join(makeRun(join(folder, 'single')), 'metrics.jsonl'), SINGLE.join(''));
    makeRun(join(runs, 'hostile'), {
      text: '"><img src=x onerror="window.hit=1"><script>window.hit=1</script>',
    });
    const at = async (named: string[], file: string) =>
      pathToFileURL(await writeReport(named, join(folder, file))).href;
    for (const name of ['one', 'long', 'hostile'])
      addresses[name] = await at([join(runs, name)], `${name}.html`);
    addresses.single = await at([join(folder, 'single')], 'single.html');
    addresses.compared = await at([join(runs, 'one'), join(runs, 'hostile')], 'compared.html');
    const ui = await startUi({ root: runs, port: 0, program: [] });
    stopUi = () => ui.close();
    addresses.list = ui.url;
    addresses.live = `${ui.url}/run?name=one`;
    browser = await chromium.launch({
      executablePath: CHROMIUM as string,
      args: '--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync'.split(
        ' ',
      ),
    });
  });
  afterAll(async () => {
    await browser?.close();
    await stopUi();
    rmSync(folder, { recursive: true, force: true });
  });

  async function open(
    name: string,
    width: number,
    colorScheme: 'light' | 'dark',
    before = '',
  ): Promise<{ page: Page; errors: string[] }> {
    const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
    page.setDefaultTimeout(PATIENCE_MS);
    const errors: string[] = [];
    page.on('pageerror', ({ message }) => errors.push(message));
    page.on('console', (message) => message.type() === 'error' && errors.push(message.text()));
    page.on('request', (request) => {
      const url = request.url();
      if (!url.startsWith('file:') && !url.startsWith('data:') && !url.startsWith('http://127.0.0.1:'))
        errors.push(url);
    });
    await page.addInitScript(`
      ${before}
      window.shift = 0;
      new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) window.shift += entry.value;
      }).observe({ type: 'layout-shift', buffered: true });
    `);
    await page.goto(addresses[name] as string);
    return { page, errors };
  }

  describe.each(['one', 'compared', 'list', 'live'])('%s', (name) => {
    it.each([
      ['desk', 'light'],
      ['desk', 'dark'],
      ['phone', 'light'],
      ['phone', 'dark'],
    ] as const)('%s, %s: fits, draws, and has enough contrast', async (size, scheme) => {
      const { page, errors } = await open(name, WIDTHS[size], scheme);
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(WIDTHS[size]);
      for (const plot of (await page.locator('[data-plot]:visible').all()).slice(0, 4)) {
        await plot.scrollIntoViewIfNeeded();
        await plot.locator('canvas').waitFor();
      }
      expect(await page.evaluate('window.shift')).toBeLessThan(0.02);
      // The page's own policy admits no foreign script, so the checker is evaluated instead of inserted.
      const { readFileSync } = await import('node:fs');
      await page.evaluate(readFileSync(AXE, 'utf8'));
      const violations =
        await page.evaluate(`axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa'] }).then(({ violations }) =>
        violations.map(({ id, nodes }) => id + ': ' + nodes.slice(0, 3).map(({ html }) => html.slice(0, 120)).join(' | ')))`);
      expect(violations).toEqual([]);
      expect(errors).toEqual([]);
      await page.close();
    });
  });

  it('the list of runs is filtered and sorted', async () => {
    const { page } = await open('list', WIDTHS.desk, 'light');
    const names = () => page.locator('tr[data-text]:visible th[scope="row"]').allTextContents();
    expect((await names()).length).toBe(3);
    await page.fill('#filter', 'stepamc LONG');
    expect(await names()).toEqual(['long']);
    expect(await page.locator('#filtered').textContent()).toBe('1 of 3 runs');
    await page.fill('#filter', '');
    await page.locator('button[data-sort="name"]').first().click();
    expect(await names()).toEqual(['hostile', 'long', 'one']);
    await page.locator('button[data-sort="name"]').first().click();
    expect(await names()).toEqual(['one', 'long', 'hostile']);
    expect(await page.locator('th[aria-sort="descending"]').first().textContent()).toBe('Run');
    await page.close();
  });

  it('a comparison keeps the name of a run together', async () => {
    const { page } = await open('compared', WIDTHS.desk, 'light');
    const lines = await page.evaluate(`(() => {
      const th = document.querySelector('table.runs tbody th');
      th.textContent = 'rank 4, seed 1';
      const range = document.createRange();
      range.selectNodeContents(th);
      return range.getClientRects().length;
    })()`);
    expect(lines).toBe(1);
    await page.close();
  });

  it('is worked by the keyboard', async () => {
    const { page } = await open('one', WIDTHS.desk, 'light');
    await page.keyboard.press('Tab');
    expect(await page.evaluate('document.activeElement.textContent')).toBe('To the content');
    const line = page.locator('[data-legend="ppo/kl"] button').first();
    await page.locator('[data-plot="ppo/kl"]').scrollIntoViewIfNeeded();
    await line.focus();
    await page.keyboard.press('Space');
    expect(await line.getAttribute('aria-pressed')).toBe('false');
    await page.locator('#smoothing').focus();
    await page.keyboard.press('Home');
    expect(await page.locator('#smoothing-value').textContent()).toBe('0.00');
    await page.close();
  });

  it('runs nothing that a run’s texts say', async () => {
    for (const name of ['hostile', 'compared']) {
      const { page, errors } = await open(name, WIDTHS.desk, 'light');
      await page.waitForTimeout(300);
      expect(await page.evaluate('window.hit')).toBeUndefined();
      expect(errors).toEqual([]);
      await page.close();
    }
  });

  it('draws what nobody scrolled to, for a picture of the whole page', async () => {
    const { page, errors } = await open('one', WIDTHS.desk, 'light');
    const plots = await page.locator('[data-plot]').all();
    expect(plots.length).toBeGreaterThan(4);
    for (const plot of plots) await plot.locator('canvas').waitFor({ state: 'attached' });
    expect(await page.evaluate('window.scrollY')).toBe(0);
    expect(errors).toEqual([]);
    await page.close();
  });

  it('draws all of them before it is printed', async () => {
    const { page, errors } = await open('one', WIDTHS.desk, 'light', 'window.requestIdleCallback = () => 0;');
    expect(await page.evaluate(UNDRAWN)).toBeGreaterThan(0);
    await page.pdf();
    expect(await page.evaluate(UNDRAWN)).toBe(0);
    expect(errors).toEqual([]);
    await page.close();
  });

  it.each([390, 500, 620])(
    'leaves room between figures and the border of their card at %d px',
    async (width) => {
      const { page } = await open('one', width, 'light');
      await page.locator('[data-plot] canvas').first().waitFor({ state: 'attached' });
      const touching = await page.evaluate(`
      [...document.querySelectorAll('.card, .box, .plot-box')].flatMap((card) => {
        const { right, left } = card.getBoundingClientRect();
        return [...card.querySelectorAll('svg, canvas, table, .scroll, img, h3, p')]
          .map((figure) => ({ figure, box: figure.getBoundingClientRect() }))
          .filter(({ figure, box }) => box.width > 0 && !figure.parentElement.closest('.scroll, svg'))
          .filter(({ box }) => box.right > right - 4 || box.left < left + 4)
          .map(({ figure }) => card.className + ': ' + figure.outerHTML.slice(0, 100));
      })`);
      expect(touching).toEqual([]);
      await page.close();
    },
  );

  it.each(['light', 'dark'] as const)(
    'covers the shadow of a whole table with what is behind it, %s',
    async (theme) => {
      const { page } = await open('one', WIDTHS.desk, theme);
      const [count, others] = await page.evaluate<[number, number]>(`(() => {
      const tables = [...document.querySelectorAll('.card .scroll, .box .scroll')];
      const of = (element) => getComputedStyle(element);
      const others = tables.filter(
        (table) => !of(table).backgroundImage.includes(of(table.closest('.card, .box')).backgroundColor),
      );
      return [tables.length, others.length];
    })()`);
      expect(count).toBeGreaterThan(0);
      expect(others).toBe(0);
      await page.close();
    },
  );

  it('draws a single evaluation within the steps of its run, and a share within 0 and 100 %', async () => {
    const { page, errors } = await open('single', WIDTHS.desk, 'light', KEEP_TEXTS);
    await page.locator('[data-plot="sft/accuracy"] canvas').waitFor();
    await page.waitForFunction("window.texts['sft/accuracy']");
    const texts = await page.evaluate<string[]>("window.texts['sft/accuracy']");
    const shares = texts.filter((text) => text.endsWith('%')).map((text) => Number.parseFloat(text));
    expect([Math.min(...shares), Math.max(...shares)]).toEqual([0, 100]);
    const steps = texts.filter((text) => /^\d+$/.test(text)).map(Number);
    expect(Math.min(...steps)).toBe(0);
    expect(Math.max(...steps)).toBeGreaterThan(140);
    expect(Math.max(...steps)).toBeLessThanOrEqual(180);
    expect(errors).toEqual([]);
    await page.close();
  });

  it('draws 50,000 logged steps as 1,000 points', async () => {
    const { page, errors } = await open('long', WIDTHS.desk, 'light');
    const loss = page.locator('[data-plot="ppo/loss"]');
    await loss.scrollIntoViewIfNeeded();
    await loss.locator('canvas').waitFor();
    const data = JSON.parse((await page.locator('#page-data').textContent()) ?? '{}') as {
      plots: { series: { x: number[] }[] }[];
    };
    const lengths = data.plots.flatMap(({ series }) => series.map(({ x }) => x.length));
    expect(Math.max(...lengths)).toBe(1000);
    expect(errors).toEqual([]);
    await page.close();
  });
});
