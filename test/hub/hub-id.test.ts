import { describe, expect, it } from 'vitest';
import { parseHubId } from '../../src/hub/hub-id.js';

describe('a hub id', () => {
  it.each([
    ['Qwen/Qwen2.5-0.5B', { repo: 'Qwen/Qwen2.5-0.5B', revision: 'main' }],
    ['trl-lib/prm800k@v1.0', { repo: 'trl-lib/prm800k', revision: 'v1.0' }],
    ['trl-lib/prm800k:test', { repo: 'trl-lib/prm800k', revision: 'main', selection: 'test' }],
    [
      'openai/gsm8k@refs/pr/3:main/test',
      { repo: 'openai/gsm8k', revision: 'refs/pr/3', selection: 'main/test' },
    ],
    ['a/b', { repo: 'a/b', revision: 'main' }],
    ['my.name/_x', { repo: 'my.name/_x', revision: 'main' }],
  ])('%s is parsed', (text, id) => {
    expect(parseHubId(text)).toEqual(id);
  });

  it.each([
    'qwen',
    'models/Qwen2.5-0.5B-Instruct',
    'data/train.jsonl',
    'data/train.jsonl.gz',
    './a/b',
    '../a/b',
    '/a/b',
    'a/b/c',
    'a//b',
    'a/',
    '-a/b',
    'a/b-',
    'a--b/c',
    'a/b..c',
    'a/b@',
    'a/b@../x',
    'a/b@x//y',
    'a/b:',
    'a b/c',
    'C:\\data\\x',
    'a/b.git',
    `a/${'b'.repeat(97)}`,
  ])('%s can only be a path', (text) => {
    expect(parseHubId(text)).toBeUndefined();
  });
});
