import { expect, it } from 'vitest';
import { typedCommand } from '../../src/native/typed-command.js';

it.each([
  ['npx in a clone', '/srv/me/.npm/_npx/4f7c/node_modules/.bin/steptrain', 'exec', 'npx steptrain'],
  ['a script of package.json', '/srv/app/node_modules/.bin/steptrain', 'run-script', 'npx steptrain'],
  ['another package manager', '/srv/app/node_modules/.bin/steptrain', undefined, 'npx steptrain'],
  ['the path', '/usr/local/bin/steptrain', undefined, 'steptrain'],
  ['its file in a clone', '/srv/clone/bin/steptrain.mjs', undefined, 'node bin/steptrain.mjs'],
  ['its file elsewhere', '/opt/clone/dist/cli/main.js', undefined, 'node /opt/clone/dist/cli/main.js'],
  ['a program that has the package', '/srv/app/bin/server.js', undefined, 'npx steptrain'],
  ['no file', undefined, undefined, 'npx steptrain'],
])('names the command as it was started: by %s', (_, script, npm, expected) => {
  expect(typedCommand('run --resume runs/my', { script, npm, folder: '/srv/clone' })).toBe(
    `${expected} run --resume runs/my`,
  );
});
