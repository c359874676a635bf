/** The processes that hold memory of the machine's GPUs, as far as nvidia-smi lists them. */
import { spawnSync } from 'node:child_process';

export interface GpuHolder {
  readonly pid: number;
  readonly name: string;
  readonly bytes: number;
}

/** Other processes than this one; none where nvidia-smi is absent or, as in a container, does not see them. */
export function gpuHolders(): readonly GpuHolder[] {
  const fields = ['pid', 'process_name', 'used_memory'];
  const { stdout } = spawnSync(
    'nvidia-smi',
    [`--query-compute-apps=${fields.join()}`, '--format=csv,noheader,nounits'],
    { encoding: 'utf8', timeout: 5000 },
  );
  return (stdout ?? '').split('\n').flatMap((line) => {
    const found = /^(\d+), (.*), (\d+)$/.exec(line.trim());
    if (!found) return [];
    const [, pid, path, mebibytes] = found as unknown as [string, string, string, string];
    const name = path.replace(/^.*[\\/]/, '');
    return Number(pid) === process.pid
      ? []
      : [{ pid: Number(pid), name, bytes: Number(mebibytes) * 2 ** 20 }];
  });
}
