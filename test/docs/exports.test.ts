// The package exports every function, class and constant of src/ that the documentation names in a code span or calls.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import * as api from '../../src/entries/index.js';
import * as ops from '../../src/entries/ops.js';
import * as train from '../../src/entries/train.js';
import { pages } from './pages.js';

/** Whether a code span means a function: a call, or a name in camelCase. Single words are mostly keys and methods. */
function meansFunction(span: string): boolean {
  return /^\w+\(.*\)$/.test(span) || /^[a-zA-Z]\w*[a-z][A-Z]\w*$/.test(span);
}

/** Objectives have names of one word, and the code spans of their section are all objectives. */
const OBJECTIVES = /^## Objectives$(.*?)^## /ms;

const exported = new Set([api, ops, train].flatMap((entry) => Object.keys(entry)));

function definedIn(folder: string, but: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && name !== but)
    .flatMap((name) => {
      const text = readFileSync(join(folder, name), 'utf8');
      return [...text.matchAll(/^export (?:async )?(?:function\*?|class|const) (\w+)/gm)].map(
        (match) => match[1] as string,
      );
    });
}

// Elementary functions have the names of options and keys, such as `log`.
const defined = new Set(definedIn('src', 'native/elementary.ts'));

describe.each(pages())('%s', (page, text) => {
  it('names only what the package exports', () => {
    const spansOf = (part: string) => [...part.matchAll(/`([^`\n]+)`/g)].map((match) => match[1] as string);
    const spans = [
      ...spansOf(text).filter(meansFunction),
      ...spansOf(OBJECTIVES.exec(text)?.[1] ?? '').filter((span) => /^\w+$/.test(span)),
    ];
    const named = spans.flatMap((span) => /^\w+/.exec(span)?.[0] ?? []);
    const hidden = [...new Set(named)].filter((name) => defined.has(name) && !exported.has(name));
    expect(hidden, page).toEqual([]);
  });
});

it('every exported function and class is documented or tested', () => {
  const everywhere = pages()
    .map(([, text]) => text)
    .join('\n');
  const tests = readdirSync('test', { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.startsWith('docs/'))
    .map((name) => readFileSync(join('test', name), 'utf8'))
    .join('\n');
  const unused = [...exported].filter((name) => {
    const word = new RegExp(`\\b${name}\\b`);
    return !word.test(everywhere) && !word.test(tests);
  });
  expect(unused).toEqual([]);
});
