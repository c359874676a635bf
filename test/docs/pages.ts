import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** README and the pages of docs/ for users, by name: without evidence and kernels, which name what is inside. */
export function pages(): (readonly [name: string, text: string])[] {
  const names = readdirSync('docs', { recursive: true, encoding: 'utf8' }).filter(
    (name) => name.endsWith('.md') && !/^(evidence|kernels)\//.test(name),
  );
  return ['README.md', ...names.map((name) => join('docs', name))].map((name) => [
    name,
    readFileSync(name, 'utf8'),
  ]);
}

/** The TypeScript blocks of a page. */
export function codeBlocks(text: string): string[] {
  return [...text.matchAll(/^```ts\n(.*?)^```/gms)].map((match) => match[1] as string);
}
