/** The cases of episodes: the agent of the package with its calculator, which answers at once or after 100 ms. */
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { wordProblems } from '#src/data/problems/generate.js';
import type { EpisodeCase, Group } from './cases.js';

const AGENT = fileURLToPath(new URL('../../../assets/word-problems-turns', import.meta.url));
const PROBLEMS = 128;
const GENERATIONS = 2;
const ROWS = 32;

export function episodeGroups(): readonly Group[] {
  const file = join(tmpdir(), 'steptrain-bench-problems.jsonl');
  const problems = [...wordProblems({ seed: 5, samples: PROBLEMS, levels: [0, 1] })];
  writeFileSync(
    file,
    problems.map(({ problem, answer }) => `${JSON.stringify({ problem, answer })}\n`).join(''),
  );
  return [0, 100].map((latency): Group => {
    const what = latency === 0 ? 'a tool at once' : `a tool of ${latency} ms`;
    const item: EpisodeCase = {
      ...{ suite: 'episodes', name: '1,000 tokens', dtype: 'f32', flops: 0, bytes: 0 },
      ...{ model: AGENT, file, generations: GENERATIONS, rows: ROWS, latency, newTokens: 24, maxLength: 256 },
    };
    return {
      title: `${PROBLEMS * GENERATIONS} episodes of an agent of 0.9M parameters in ${ROWS} rows, f32, ${what}`,
      cases: [item],
      settings: ['TRL', 'TRL, all rows together'],
    };
  });
}
