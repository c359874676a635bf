// What may import what in src/. The rooms, from the top, as ARCHITECTURE.md lists them: nothing imports from a line above its own.
export const ROOMS = [
  ['entries'],
  ['cli'],
  ['serve', 'sweep', 'ui'],
  ['methods'],
  ['report'],
  ['train', 'corrections'],
  ['rewards'],
  ['eval'],
  ['scoring'],
  ['run'],
  ['config', 'hub'],
  ['api', 'remote', 'environments'],
  ['generate'],
  ['sequences'],
  ['data', 'models'],
  ['architectures'],
  ['tokenizer', 'weights'],
  ['objectives', 'ops', 'autograd', 'runtime'],
  ['answers', 'cluster', 'jinja', 'records', 'files', 'random', 'terminal'],
  ['native'],
];

const inside = (lines) => `^src/(${lines.flat().join('|')})/`;

export default {
  forbidden: [
    {
      name: 'circle-of-rooms',
      severity: 'error',
      scope: 'folder',
      from: { path: '^src/[^/]+$' },
      to: { path: '^src/[^/]+$', circular: true },
    },
    {
      name: 'circle-of-files',
      comment: 'Types included: what two files need belongs to a third, or to one of them.',
      severity: 'error',
      from: {},
      to: { circular: true },
    },
    ...ROOMS.slice(1).map((rooms, i) => ({
      name: 'import-from-above',
      severity: 'error',
      from: { path: inside(rooms) },
      to: { path: inside(ROOMS.slice(0, i + 1)) },
    })),
    {
      name: 'room-without-a-place',
      comment: 'Name the new room in the list above and in ARCHITECTURE.md.',
      severity: 'error',
      from: { path: '^src/[^/]+/', pathNot: inside(ROOMS) },
      to: {},
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
  },
};
