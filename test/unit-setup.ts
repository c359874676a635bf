// What a file of the project `unit` leaves behind would be found by the next one in its process.
import { afterAll, vi } from 'vitest';

afterAll(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});
