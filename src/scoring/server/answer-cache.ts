// Answers of a judge by a hash of their request, one JSON line each, appended as they come.
import { appendFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { writing } from '../../files/error.js';

export interface AnswerCache {
  get(key: string): string | undefined;
  put(key: string, text: string): void;
}

/** A line that a crash has cut short is passed over. */
export function openAnswerCache(path: string): AnswerCache {
  const answers = new Map<string, string>();
  writing(path, () => mkdirSync(dirname(path), { recursive: true }));
  const text = existsSync(path) ? readFileSync(path, 'utf8') : '';
  for (const line of text.split('\n')) {
    try {
      const { key, text } = JSON.parse(line) as { key: string; text: string };
      answers.set(key, text);
    } catch {
      // The rest of a line.
    }
  }
  const append = (line: string) => writing(path, () => appendFileSync(path, line));
  if (text !== '' && !text.endsWith('\n')) append('\n');
  return {
    get: (key) => answers.get(key),
    put(key, text) {
      answers.set(key, text);
      append(`${JSON.stringify({ key, text })}\n`);
    },
  };
}
