import { hash } from 'node:crypto';

/** The first 48 bits of the SHA-256 of a text in UTF-8. */
export function hash48(text: string): number {
  return Number.parseInt(hash('sha256', text, 'hex').slice(0, 12), 16);
}

/** FNV-1a over UTF-16 code units, with a final mix: neither the smallest hashes nor a remainder of the bare one are uniform. */
export function textHash(text: string): number {
  return mixed(extended(BASIS, text));
}

/** The `textHash` of `words[start]` to `words[end - 1]`, joined by spaces. */
export function wordsHash(words: readonly string[], start: number, end: number): number {
  let state = extended(BASIS, words[start] as string);
  for (let i = start + 1; i < end; i++) state = extended(extended(state, ' '), words[i] as string);
  return mixed(state);
}

const BASIS = 0x811c9dc5;

function extended(state: number, text: string): number {
  let hash = state;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash;
}

function mixed(state: number): number {
  let hash = Math.imul(state ^ (state >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
