/** The style, script and formula fonts that every page contains. */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { invalid } from '../native/errors.js';

const BUILT = fileURLToPath(new URL('../../dist/report/', import.meta.url));

/** @throws StepTrainError where the package was built without its pages */
function asset(name: string): string {
  const path = join(BUILT, name);
  if (!existsSync(path))
    throw invalid(`${path} is missing; install the package again, or in a clone: npm run build`);
  return readFileSync(path, 'utf8');
}

let loaded: { readonly style: string; readonly script: string; readonly scriptHash: string } | undefined;

export function pageAssets() {
  if (!loaded) {
    const script = asset('browser.js').replaceAll('</script', '<\\/script');
    loaded = {
      style: asset('browser.css'),
      script,
      scriptHash: createHash('sha256').update(script).digest('base64'),
    };
  }
  return loaded;
}

/** Style of formulas, with the font of script letters inside; the rest are the reader's own fonts. */
export function formulaStyle(): string {
  const file = createRequire(import.meta.url).resolve('temml/dist/Temml-Local.css');
  const font = readFileSync(join(dirname(file), 'Temml.woff2')).toString('base64');
  return readFileSync(file, 'utf8').replace("url('Temml.woff2')", `url('data:font/woff2;base64,${font}')`);
}
