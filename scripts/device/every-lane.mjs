// Links the addon once more, with a kernel in which every lane arrives at its barriers instead of one for its warp: what
// racecheck reports of that kernel (docs/kernels/cuda.md, "What racecheck reports") should go away there, and no bit change.
//   node scripts/device/every-lane.mjs ADDON
// One file is compiled again, by the command of the last `npm run build`; everything else is taken from that.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const KERNEL = 'cuda/attention/sm90_backward_keys.cu';
const build = fileURLToPath(new URL('../../build', import.meta.url));
const output = resolve(process.argv[2]);
const shell = (command) => execFileSync('sh', ['-ec', command], { cwd: build, stdio: 'inherit' });

const commands = JSON.parse(readFileSync(join(build, 'compile_commands.json'), 'utf8'));
const compile = commands.find(({ file }) => file.endsWith(`/${KERNEL}`))?.command;
const object = / -o (\S+)/.exec(compile ?? '')?.[1];
if (!object)
  throw new Error(`build/ has no command that compiles ${KERNEL}: build the addon for sm_90a first`);
const other = `${object}.every-lane.o`;
shell(`${compile.replace(` -o ${object}`, ` -o ${other}`)} -DSTEPTRAIN_EVERY_LANE_ARRIVES`);

const link = readFileSync(join(build, 'CMakeFiles/steptrain.dir/link.txt'), 'utf8').trim();
if (!link.split(/\s+/).includes(object))
  throw new Error(`${object} is none of what the addon is linked from`);
shell(
  link
    .split(' ')
    .map((word) => (word === object ? other : word))
    .join(' ')
    .replace(/ -o \S+/, ` -o '${output}'`),
);
