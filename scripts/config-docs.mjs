// Writes what the built package says of itself: docs/reference/configuration.md and docs/reference/commands.md.
// node scripts/config-docs.mjs
import { writeFileSync } from 'node:fs';
import { commandReference } from '../dist/cli/line/reference.js';
import { configurationPage } from '../dist/methods/config.js';

const write = (path, text) => writeFileSync(new URL(`../${path}`, import.meta.url), text);
write('docs/reference/configuration.md', configurationPage());
write('docs/reference/commands.md', await commandReference());
