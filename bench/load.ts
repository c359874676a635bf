import { type ChildProcess, spawn } from 'node:child_process';

/** Keeps a core busy until it is ended, or until its parent is gone. */
const BUSY = `
const parent = process.ppid;
while (process.ppid === parent) for (let i = 0; i < 1e7; i++);
`;

/** `count` processes of normal priority that keep a core each. */
export function startLoad(count: number): { end(): void } {
  const children = Array.from(
    { length: count },
    (): ChildProcess => spawn(process.execPath, ['-e', BUSY], { stdio: 'ignore' }),
  );
  return {
    end() {
      for (const child of children) child.kill('SIGKILL');
    },
  };
}
