import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // Tests leave the user's cache alone.
    env: { STEPTRAIN_CACHE: join(tmpdir(), 'steptrain-test-cache') },
    globalSetup: 'test/global-setup.ts',
    pool: 'forks',
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
