import { readFileSync } from 'node:fs';

const packageFile = new URL('../../package.json', import.meta.url);

/** The version in package.json. */
export function packageVersion(): string {
  return (JSON.parse(readFileSync(packageFile, 'utf8')) as { readonly version: string }).version;
}

/** The runtime, as `Node 24.11.0`: Bun and Deno have a version of Node's that is none of their own. */
export function runtimeVersion(
  versions: Readonly<Record<string, string | undefined>> = process.versions,
): string {
  const { node, bun, deno } = versions;
  return bun ? `Bun ${bun}` : deno ? `Deno ${deno}` : `Node ${node}`;
}
