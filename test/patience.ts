/**
 * How long a test waits at most: milliseconds by the clock. It ends what hangs, and says nothing of speed: a machine may be
 * busy, slow or an emulator. `vitest.config.ts` has it for tests, hooks and `expect.poll`; no test has a limit of its own.
 */
export const PATIENCE_MS = 900_000;
