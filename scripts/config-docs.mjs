// Writes what the built package says of itself: docs/reference/configuration.md and docs/reference/commands.md.
// node scripts/config-docs.mjs
import { writeFileSync } from 'node:fs';
import { commandLine } from '../dist/cli/cli.js';
import { CHANGEABLE } from '../dist/config/changeable.js';
import { expectation, methodOutline, sectionOf } from '../dist/config/outline.js';
import { optimization } from '../dist/config/training.js';
import { methods } from '../dist/methods/table.js';
import { grouped } from '../dist/native/grouped.js';
import { commandReference } from './docs/command-reference.mjs';
import { pageWriter } from './docs/configuration-page.mjs';

const write = (path, text) => writeFileSync(new URL(`../${path}`, import.meta.url), text);
const configurationPage = pageWriter({
  CHANGEABLE,
  expectation,
  grouped,
  methodOutline,
  optimization,
  sectionOf,
});
write('docs/reference/configuration.md', configurationPage(methods));
write('docs/reference/commands.md', await commandReference(commandLine));
