import { expect, it } from 'vitest';
import { runtimeVersion } from '../../src/native/version.js';

it('the runtime is named by its own version, not by that of Node which it claims', () => {
  expect(runtimeVersion({ node: '24.11.0' })).toBe('Node 24.11.0');
  expect(runtimeVersion({ node: '26.3.0', bun: '1.4.5' })).toBe('Bun 1.4.5');
  expect(runtimeVersion({ node: '26.3.0', deno: '2.9.6' })).toBe('Deno 2.9.6');
  expect(runtimeVersion()).toBe(`Node ${process.versions.node}`);
});
