// Hostile names and texts in a run must stay text on its page: no script, no request, no markup.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { threadClock } from '../../src/native/processor-time.js';
import { collectRun } from '../../src/report/collect.js';
import { jsonScript } from '../../src/report/html.js';
import { typeset } from '../../src/report/maths.js';
import { renderRun } from '../../src/report/run-page.js';
import { makeRun } from '../report/run-fixture.js';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'steptrain-report-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const TEXTS: readonly string[] = [
  '<script>alert(1)</script>',
  '</script><script>alert(1)</script>',
  '</title></style><img src=x onerror=alert(1)>',
  '" onmouseover="alert(1)" x="',
  "' autofocus onfocus='alert(1)",
  '<!--<script>',
  ']]><svg onload=alert(1)>',
  '$\\href{javascript:alert(1)}{x}$',
  '$\\includegraphics{http://example.com/x.png}$',
  '$\\text{<img src=x onerror=alert(1)>}$',
  '$\\color{red" onload="alert(1)}{x}$',
  '$\\class{a" onclick="alert(1)}{x}$',
  '\u2028\u2029\u0000\ufeff<b>',
  '&lt;script&gt;alert(1)&lt;/script&gt;',
];

describe('a page of a run with hostile texts', () => {
  it.each(TEXTS)('%s', async (text) => {
    const name = text.replaceAll(/[/\0]/g, '_');
    const page = renderRun(await collectRun(makeRun(join(folder, name), { text })));
    // The data, and the page's own script, which the policy admits by its hash.
    expect(page.match(/<script/gi)).toHaveLength(2);
    expect(page.match(/<style/gi)?.length).toBeLessThanOrEqual(2);
    const markup = page.replace(/<script[\s\S]*?<\/script>|<style[\s\S]*?<\/style>/g, '');
    for (const [tag] of markup.matchAll(/<[a-z][^>]*>/gi)) {
      const outsideOfQuotes = tag.replace(/"[^"]*"/g, '""');
      expect(outsideOfQuotes).not.toMatch(/\son\w+\s*=/i);
      expect(tag).not.toMatch(/(?:src|href)="(?!#|data:,)/i);
    }
    expect(markup).not.toMatch(/<(?:img|iframe|object|embed|form|base)\b/i);
    expect(page).toContain("default-src 'none'");
  });
});

it('JSON in a script cannot end it', () => {
  const { text } = jsonScript('x', { a: '</script><!--<script>' });
  expect(text.match(/</g)).toHaveLength(2);
  expect(JSON.parse(text.replace(/^<[^>]*>|<[^<]*$/g, ''))).toEqual({ a: '</script><!--<script>' });
});

it('formulas that grow without end, or are very deep, are left as they were written', () => {
  const started = threadClock();
  expect(typeset('$\\def\\a{\\a\\a}\\a$').text).not.toContain('<math');
  expect(typeset(`$${'{'.repeat(1900)}$`).text).not.toContain('<math');
  expect(typeset(`$${'\\frac{1}{'.repeat(180)}1${'}'.repeat(180)}$`).text.length).toBeLessThan(100_000);
  expect(typeset('$x$'.repeat(5000)).text.match(/<math/g)?.length).toBeLessThanOrEqual(200);
  expect(typeset('$'.repeat(100_000)).text.length).toBe(100_000);
  expect(typeset('\\('.repeat(50_000)).text.length).toBe(100_000);
  expect(threadClock() - started).toBeLessThan(60_000);
});

it('an eval.json of any depth and width is shown as far as a page can hold it', async () => {
  const path = makeRun(join(folder, 'deep'));
  const depth = 5_000;
  writeFileSync(
    join(path, 'eval.json'),
    `{"lists": ${'['.repeat(depth)}1${']'.repeat(depth)}, "objects": ${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}, ` +
      `"__proto__": {"polluted": 1}, "wide": {${Array.from({ length: 20_000 }, (_, i) => `"k${i}": {"x${i}": ${i}}`).join()}}}`,
  );
  const page = renderRun(await collectRun(path));
  // What is too deep for JSON.stringify is named.
  expect(page).toMatch(/objects<\/summary><pre[^>]*>(?:nested too deep|.*… more in eval\.json)/s);
  expect(page).toMatch(/wide<\/summary><pre[^>]*>[^<]*… more in eval\.json/);
  expect(page.length).toBeLessThan(1_000_000);
  expect(({} as { polluted?: number }).polluted).toBeUndefined();
});
