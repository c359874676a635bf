// The place of a process, by what each launcher was seen to set.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, expect, it, vi } from 'vitest';
import {
  aloneBecause,
  firstHost,
  isAloneUnderMpi,
  joinLimits,
  mpiProxy,
  type Place,
  placeOf,
  tasksOn,
  withoutLauncher,
} from '../../src/cluster/environment.js';
import { joinJob } from '../../src/methods/job.js';
import { PATIENCE_MS } from '../patience.js';

const TORCHRUN = {
  RANK: '5',
  WORLD_SIZE: '8',
  LOCAL_RANK: '1',
  LOCAL_WORLD_SIZE: '4',
  MASTER_ADDR: 'node-a',
  MASTER_PORT: '29500',
  TORCHELASTIC_RUN_ID: 'job-7',
  TORCHELASTIC_RESTART_COUNT: '2',
};

const SRUN = {
  SLURM_JOB_ID: '4711',
  SLURM_STEP_ID: '0',
  SLURM_PROCID: '3',
  SLURM_NTASKS: '6',
  SLURM_STEP_NUM_TASKS: '6',
  SLURM_LOCALID: '0',
  SLURM_NODEID: '1',
  SLURM_STEP_TASKS_PER_NODE: '3(x2)',
  SLURM_STEP_NODELIST: 'gpu[03-04]',
};

/** What `srun -n 2` of SLURM 22.05.8 sets on one node, but for what concerns users and ports of srun itself. */
const SRUN_ONE_NODE = {
  SLURMD_NODENAME: 'node1',
  SLURM_CPUS_ON_NODE: '2',
  SLURM_GTIDS: '0,1',
  SLURM_JOBID: '2',
  SLURM_JOB_CPUS_PER_NODE: '2',
  SLURM_JOB_ID: '2',
  SLURM_JOB_NODELIST: 'node1',
  SLURM_JOB_NUM_NODES: '1',
  SLURM_LAUNCH_NODE_IPADDR: '127.0.0.1',
  SLURM_LOCALID: '1',
  SLURM_NNODES: '1',
  SLURM_NODEID: '0',
  SLURM_NODELIST: 'node1',
  SLURM_NPROCS: '2',
  SLURM_NTASKS: '2',
  SLURM_PROCID: '1',
  SLURM_STEPID: '0',
  SLURM_STEP_ID: '0',
  SLURM_STEP_NODELIST: 'node1',
  SLURM_STEP_NUM_NODES: '1',
  SLURM_STEP_NUM_TASKS: '2',
  SLURM_STEP_TASKS_PER_NODE: '2',
  SLURM_TASKS_PER_NODE: '2',
  SLURM_TOPOLOGY_ADDR: 'node1',
};

/** What Hydra of MPICH 4.0.2 sets. */
const HYDRA = { PMI_FD: '9', PMI_RANK: '1', PMI_SIZE: '2', MPI_LOCALRANKID: '1', MPI_LOCALNRANKS: '2' };

const MPIRUN = {
  OMPI_COMM_WORLD_RANK: '1',
  OMPI_COMM_WORLD_SIZE: '2',
  OMPI_COMM_WORLD_LOCAL_RANK: '1',
  OMPI_COMM_WORLD_LOCAL_SIZE: '2',
  PMIX_NAMESPACE: '3014524929',
};

describe('the place of a process', () => {
  it('is alone where no launcher has set anything, or a single process', () => {
    expect(placeOf({ PATH: '/bin' })).toBeUndefined();
    expect(
      placeOf({ ...TORCHRUN, RANK: '0', WORLD_SIZE: '1', LOCAL_RANK: '0', LOCAL_WORLD_SIZE: '1' }),
    ).toBeUndefined();
    expect(
      placeOf({
        ...MPIRUN,
        OMPI_COMM_WORLD_RANK: '0',
        OMPI_COMM_WORLD_SIZE: '1',
        OMPI_COMM_WORLD_LOCAL_RANK: '0',
      }),
    ).toBeUndefined();
    expect(placeOf({ ...SRUN, SLURM_PROCID: '0', SLURM_STEP_NUM_TASKS: '1' })).toBeUndefined();
  });

  it('is alone for a reason where a launcher left out the rank', () => {
    // As `accelerate launch --cpu --num_processes 2` does (accelerate 1.15.0), which starts one process.
    const accelerate = { ACCELERATE_USE_CPU: 'True', MASTER_ADDR: '127.0.0.1', MASTER_PORT: '29500' };
    expect(placeOf(accelerate)).toBeUndefined();
    expect(aloneBecause(accelerate)).toMatch(
      /^MASTER_PORT is set and RANK is not, so that this process trains alone/,
    );
    for (const told of [{}, TORCHRUN, { ...SRUN, MASTER_PORT: '1' }, { ...MPIRUN, MASTER_PORT: '1' }])
      expect(aloneBecause(told)).toBeUndefined();
  });

  it('is one of an MPI alone', () => {
    expect([{}, MPIRUN, { OMPI_COMM_WORLD_SIZE: '1' }, { PMI_SIZE: '1' }].map(isAloneUnderMpi)).toEqual([
      false,
      false,
      true,
      true,
    ]);
  });

  it('is read from torchrun, whose agent holds MASTER_PORT', () => {
    expect(placeOf(TORCHRUN)).toMatchObject({
      launcher: 'torchrun',
      rank: 5,
      size: 8,
      localRank: 1,
      localSize: 4,
      job: 'job-7/29500/8',
      host: 'node-a',
    });
    // Agents count restarts each for itself.
    expect(placeOf({ ...TORCHRUN, TORCHELASTIC_RESTART_COUNT: '0' })!.job).toBe(placeOf(TORCHRUN)!.job);
    expect(placeOf(TORCHRUN)!.ports).toEqual(Array.from({ length: 16 }, (_, i) => 29501 + i));
  });

  it('is read from a PyTorchJob, which has a process a pod and no agent', () => {
    const {
      LOCAL_RANK: _,
      LOCAL_WORLD_SIZE: _1,
      TORCHELASTIC_RUN_ID: _2,
      TORCHELASTIC_RESTART_COUNT: _3,
      ...pod
    } = TORCHRUN;
    expect(placeOf(pod)).toMatchObject({ launcher: 'torch', rank: 5, localRank: 0, localSize: 1 });
    expect(placeOf(pod)!.ports[0]).toBe(29500);
    // Some operators call the master so in its own pod.
    expect(placeOf({ ...pod, RANK: '0', MASTER_ADDR: 'localhost' })!.job).toBe(placeOf(pod)!.job);
    expect(placeOf({ ...pod, MASTER_PORT: '29501' })!.job).not.toBe(placeOf(pod)!.job);
  });

  it('is read from mpirun', () => {
    expect(placeOf(MPIRUN)).toMatchObject({
      launcher: 'mpi',
      rank: 1,
      size: 2,
      localRank: 1,
      localSize: 2,
      host: '127.0.0.1',
    });
    const several = { ...MPIRUN, OMPI_COMM_WORLD_LOCAL_RANK: '0', OMPI_COMM_WORLD_LOCAL_SIZE: '1' };
    expect(() => placeOf(several)).toThrow(/mpirun -x MASTER_ADDR=HOST/);
    expect(placeOf({ ...several, MASTER_ADDR: 'a', MASTER_PORT: '4000' })).toMatchObject({ host: 'a' });
    expect(
      placeOf({ ...several, SLURM_JOB_NODELIST: 'n7,n9', SLURM_PROCID: '0', SLURM_JOB_ID: '1' }),
    ).toMatchObject({ launcher: 'mpi', host: 'n7' });
  });

  it('is read from mpiexec of MPICH, whose variables are those of every other job too', () => {
    const starter = () => 'host/17/4711';
    expect(placeOf(HYDRA, starter)).toMatchObject({
      ...{ launcher: 'mpi', rank: 1, size: 2, localRank: 1, localSize: 2 },
      ...{ host: '127.0.0.1', job: 'mpi/host/17/4711' },
    });
    expect(placeOf(HYDRA, () => 'host/18/4712')!.ports).not.toEqual(placeOf(HYDRA, starter)!.ports);
    const several = { ...HYDRA, MPI_LOCALRANKID: '0', MPI_LOCALNRANKS: '1' };
    expect(() => placeOf(several, starter)).toThrow('of MPICH -genv MASTER_ADDR HOST');
    expect(() => placeOf({ ...several, MASTER_ADDR: 'a' }, starter)).toThrow('-genv MASTER_PORT PORT');
    expect(placeOf({ ...several, MASTER_ADDR: 'a', MASTER_PORT: '4000' }, starter)!.job).toBe('mpi/a:4000');
    const inSlurm = {
      SLURM_JOB_ID: '77',
      SLURM_STEP_ID: '3',
      SLURM_PROCID: '1',
      SLURM_STEP_NODELIST: 'n[7-9]',
    };
    expect(placeOf({ ...several, ...inSlurm }, starter)).toMatchObject({ job: 'mpi/77.3', host: 'n7' });
    expect(() => placeOf({ PMI_ID: '1', PMI_PORT: 'a:4', MPI_LOCALNRANKS: '2' })).toThrow(
      'without -pmi-port',
    );
  });

  it('goes by MASTER_PORT where that is set, whatever has started a process', () => {
    const { MPI_LOCALRANKID: _, MPI_LOCALNRANKS: _1, ...silent } = HYDRA;
    for (const variables of [HYDRA, silent])
      for (const address of [{}, { MASTER_ADDR: 'a' }]) {
        const [one, two, other] = [4000, 4000, 4001].map(
          (port, start) =>
            placeOf({ ...variables, ...address, MASTER_PORT: String(port) }, () => `start-${start}`)!,
        ) as [Place, Place, Place];
        expect(one.job).toBe(two.job);
        expect(one.job).not.toBe(other.job);
        expect(one.ports[0]).toBe(4000);
      }
    const without = (start: string) => placeOf({ ...silent, MASTER_ADDR: 'a' }, () => start)!.job;
    expect(without('start-1')).not.toBe(without('start-2'));
  });

  it('is read from PALS, which names the ranks of a machine in its own way', () => {
    const pals = {
      ...{ PMI_RANK: '3', PMI_SIZE: '4', PMI_LOCAL_RANK: '1', PMI_LOCAL_SIZE: '2' },
      ...{ MASTER_ADDR: 'node-a', MASTER_PORT: '4000' },
    };
    const onNode = (node: string) => placeOf(pals, () => `${node}/4711/99`);
    expect(onNode('node-a')).toMatchObject({ rank: 3, size: 4, localRank: 1, localSize: 2, host: 'node-a' });
    expect(onNode('node-a')!.job).toBe(onNode('node-b')!.job);
    const { MASTER_ADDR: _, ...lost } = pals;
    expect(() => placeOf(lost, () => 'node-a/4711/99')).toThrow('on several machines');
  });

  it('is refused where a process cannot see what has started it', () => {
    // As in a container, the first process has parent 0.
    expect(() => mpiProxy(1)).toThrow('as in a container of its own, and nothing else tells this job');
  });

  it('is of one start for all processes that it has started, through whatever else', async () => {
    // A proxy, as it were, with a process of its own and one behind a shell, as npx has it.
    const proxy = () => {
      const script = 'PMI_RANK=0 sleep 60 & PMI_RANK=1 sh -c "sleep 60; :" & echo there; wait';
      const child = spawn('sh', ['-c', script], { stdio: ['ignore', 'pipe', 'ignore'], detached: true });
      return new Promise<typeof child>((resolve) => child.stdout.once('data', () => resolve(child)));
    };
    const childrenOf = (pid: number) =>
      readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
    const proxies = await Promise.all([proxy(), proxy()]);
    try {
      const names = await vi.waitFor(() => {
        const found = proxies.map(({ pid }) => {
          const [first, second] = childrenOf(pid as number) as [number, number];
          const [behind] = childrenOf(second) as [number];
          expect(behind).toBeGreaterThan(0);
          for (const rank of [first, second])
            expect(readFileSync(`/proc/${rank}/environ`, 'utf8')).toContain('PMI_RANK=');
          return [first, behind].map((rank) => mpiProxy(rank));
        });
        return found;
      }, PATIENCE_MS);
      for (const [one, other] of names) expect(one).toBe(other);
      expect(names[0]![0]).toContain(`/${proxies[0]!.pid}/`);
      expect(names[0]![0]).not.toBe(names[1]![0]);
    } finally {
      for (const { pid } of proxies) process.kill(-(pid as number));
    }
  });

  it('is read from srun, and not from a script of sbatch', () => {
    expect(placeOf(SRUN)).toMatchObject({
      launcher: 'slurm',
      rank: 3,
      size: 6,
      localRank: 0,
      localSize: 3,
      job: '4711.0/0',
      host: 'gpu03',
    });
    const { SLURM_STEP_ID: _, ...script } = SRUN;
    expect(placeOf(script)).toBeUndefined();
  });

  it('is read from srun on one node, whose name need not be known to its resolver', () => {
    expect(placeOf(SRUN_ONE_NODE)).toMatchObject({
      rank: 1,
      size: 2,
      localRank: 1,
      localSize: 2,
      cores: 2,
      job: '2.0/0',
      host: '127.0.0.1',
    });
    expect(placeOf({ ...SRUN_ONE_NODE, MASTER_ADDR: 'a' })).toMatchObject({ host: 'a' });
    expect(() => placeOf({ ...SRUN_ONE_NODE, SLURM_CPUS_ON_NODE: 'all' })).toThrow(
      'SLURM_CPUS_ON_NODE is "all" (slurm), expected a whole number',
    );
    expect(placeOf(SRUN)!.cores).toBeUndefined();
  });

  it('is read from srun also where it starts processes for MPICH too (pmi2)', () => {
    const pmi2 = (of: Record<string, string>) => ({
      ...of,
      ...{ PMI_FD: '9', PMI_JOBID: '4711.0', PMI_RANK: of.SLURM_PROCID, PMI_SIZE: of.SLURM_STEP_NUM_TASKS },
    });
    expect(placeOf(pmi2(SRUN))).toEqual(placeOf(SRUN));
    expect(placeOf(pmi2(SRUN_ONE_NODE))).toEqual(placeOf(SRUN_ONE_NODE));
    // Hydra starts a proxy a node by srun, whose variables its processes have too.
    expect(placeOf({ ...SRUN, ...HYDRA, SLURM_PROCID: '1' })).toMatchObject({ launcher: 'mpi', size: 2 });
  });

  it('has the same ports in all processes of a job, and others in another job', () => {
    const ports = (job: string, rank: string) =>
      placeOf({ ...SRUN, SLURM_JOB_ID: job, SLURM_PROCID: rank })!.ports;
    expect(ports('4711', '0')).toEqual(ports('4711', '5'));
    expect(ports('4711', '0')).not.toEqual(ports('4712', '0'));
    for (const port of ports('4711', '0')) expect(port).toBeLessThan(32_768);
  });

  it.each([
    [{ ...TORCHRUN, RANK: '8' }, 'RANK is 8, and WORLD_SIZE is 8'],
    [{ ...TORCHRUN, RANK: '-1' }, 'RANK is "-1" (torchrun), expected a whole number'],
    [{ ...TORCHRUN, MASTER_ADDR: '' }, 'MASTER_ADDR is not set, and the other variables of torchrun are'],
    [{ ...TORCHRUN, MASTER_PORT: undefined }, 'MASTER_PORT is not set'],
    [{ ...SRUN, SLURM_STEP_NODELIST: undefined }, 'SLURM_STEP_NODELIST is missing'],
  ])('is refused where variables contradict each other: %#', (environment, message) => {
    expect(() => placeOf(environment)).toThrow(message);
  });

  it('knows where an MPI finds the others too', () => {
    expect(placeOf(MPIRUN)!.mpi).toBe(true);
    expect(placeOf(TORCHRUN)!.mpi).toBe(false);
    expect(placeOf(SRUN)!.mpi).toBe(false);
    // srun --mpi=pmix of SLURM 22.05.
    expect(placeOf({ ...SRUN, PMIX_RANK: '3', PMIX_NAMESPACE: 'slurm.pmix.3.0' })).toMatchObject({
      launcher: 'slurm',
      mpi: true,
    });
  });

  it('is nothing that processes which a rank starts inherit', () => {
    const kept = { PATH: '/bin', HOME: '/home/a', STEPTRAIN_CACHE: '/c' };
    expect(withoutLauncher({ ...kept, ...TORCHRUN, ...SRUN, ...MPIRUN, PMI_RANK: '0' })).toEqual(kept);
  });
});

describe('lists of SLURM', () => {
  it.each([
    ['gpu03', 'gpu03'],
    ['gpu03,gpu05', 'gpu03'],
    ['gpu[03-05,9],login', 'gpu03'],
    ['rack[7]-node,x', 'rack7-node'],
  ])('%s begins with %s', (list, first) => expect(firstHost(list)).toBe(first));

  it.each([
    ['4', 0, 4],
    ['4(x2),3', 1, 4],
    ['4(x2),3', 2, 3],
    ['4(x2),3', 3, undefined],
  ])('%s has on node %i the tasks %s', (list, node, tasks) => expect(tasksOn(list, node)).toBe(tasks));
});

it('waits at the start for as long as STEPTRAIN_JOIN_SECONDS says', () => {
  expect(joinLimits({})).toEqual({});
  expect(joinLimits({ STEPTRAIN_JOIN_SECONDS: '' })).toEqual({});
  expect(joinLimits({ STEPTRAIN_JOIN_SECONDS: '900' })).toEqual({ joinSeconds: 900, unknownSeconds: 900 });
  for (const wrong of ['0', '-1', '1.5', '15 min', '1000000'])
    expect(() => joinLimits({ STEPTRAIN_JOIN_SECONDS: wrong })).toThrow(
      `STEPTRAIN_JOIN_SECONDS is "${wrong}", expected a whole number of seconds from 1 to 999999; unset it for 300`,
    );
});

it('takes the limit of the environment when it joins', async () => {
  const environment = {
    ...TORCHRUN,
    RANK: '0',
    MASTER_ADDR: '127.0.0.1',
    MASTER_PORT: '28731',
    STEPTRAIN_JOIN_SECONDS: '1',
  };
  await expect(joinJob({}, environment)).rejects.toThrow(
    /^7 of 8 processes have not come within 1 s: rank 1, 2, /,
  );
  await expect(joinJob({}, { ...environment, STEPTRAIN_JOIN_SECONDS: 'soon' })).rejects.toThrow(
    /^STEPTRAIN_JOIN_SECONDS is "soon"/,
  );
});
