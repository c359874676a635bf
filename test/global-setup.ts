// Runs once, before all tests.
import { addon } from '../src/native/addon.js';

/** Says which kernels nothing of this run can test. */
export default function setup(): void {
  let unbuilt: readonly string[];
  try {
    unbuilt = addon().unbuiltIsas();
  } catch {
    return; // a test that needs the addon says what is wrong with it
  }
  if (unbuilt.length === 0) return;
  console.warn(
    `skipped: kernels of ${unbuilt.join(', ')}, which are not in this build (npm run build -- --all)`,
  );
}
