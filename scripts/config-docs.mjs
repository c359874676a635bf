// Writes docs/configuration.md from the schema of the built package: node scripts/config-docs.mjs
import { writeFileSync } from 'node:fs';
import { configurationPage } from '../dist/methods/config.js';

writeFileSync(new URL('../docs/configuration.md', import.meta.url), configurationPage());
