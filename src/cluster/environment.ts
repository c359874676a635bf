/**
 * The rank of this process and the size of its job, from the variables of launchers: torchrun, PyTorchJob, srun,
 * mpirun.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { attempt } from '../native/attempt.js';
import { invalid } from '../native/errors.js';

export type Environment = Readonly<Record<string, string | undefined>>;

/** This process among those of one job. */
export interface Place {
  readonly launcher: 'torchrun' | 'torch' | 'slurm' | 'mpi';
  /** Whether an MPI finds the other processes too: started by mpirun, or by srun with PMIx. */
  readonly mpi: boolean;
  /** 0 … size − 1. */
  readonly rank: number;
  readonly size: number;
  /** The same among the processes of this machine. */
  readonly localRank: number;
  readonly localSize: number;
  /** Cores of this machine that the launcher gives to all of them; absent: all that this process may use. */
  readonly cores?: number | undefined;
  /** Equal for all processes of one start of one job, and no other's. */
  readonly job: string;
  /** Address at which rank 0 listens. */
  readonly host: string;
  /** Rank 0 takes the first that is free; the others try each. */
  readonly ports: readonly number[];
}

/** Number of ports tried where the first is taken, as by another job on the same machine. */
const PORTS = 16;

/**
 * The place that the environment gives this process, or undefined where no launcher has started several.
 *
 * @param starter names the program that started the processes of this machine, where their variables do not distinguish
 *   one start from another
 * @throws StepTrainError E_RANGE where the variables contradict each other or lack an address
 */
export function placeOf(environment: Environment, starter: () => string = mpiProxy): Place | undefined {
  const place =
    fromTorch(environment) ??
    fromOpenMpi(environment, starter) ??
    fromMpich(environment, starter) ??
    fromSlurm(environment);
  return place && place.size > 1 ? place : undefined;
}

/** The reason why a process trains alone though a launcher was meant to start several, such as `accelerate launch --cpu`. */
export function aloneBecause(environment: Environment): string | undefined {
  const { MASTER_PORT, RANK } = environment;
  if (MASTER_PORT === undefined || RANK !== undefined || isSized(environment)) return undefined;
  return (
    'MASTER_PORT is set and RANK is not, so that this process trains alone; where a launcher was to start several ' +
    '(accelerate launch --cpu starts one), use torchrun --nproc-per-node N'
  );
}

/** Whether an MPI or srun started this process, and says how many there are. */
const isSized = (environment: Environment): boolean =>
  ['OMPI_COMM_WORLD_SIZE', 'PMI_SIZE', 'SLURM_STEP_ID'].some((name) => environment[name] !== undefined);

/** Whether this is the one process of an MPI job. */
export const isAloneUnderMpi = (environment: Environment): boolean =>
  (environment.OMPI_COMM_WORLD_SIZE ?? environment.PMI_SIZE) === '1';

/** Variables of launchers. They are removed for child processes, which are no ranks of the same job. */
const LAUNCHER_VARIABLES =
  /^(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|ROLE_\w+|MASTER_(ADDR|PORT)|TORCHELASTIC_\w+|PET_\w+|SLURM_\w+|OMPI_\w+|PMIX?_\w+|PALS_\w+|PRTE_\w+|MPI_LOCAL\w+)$/;

/** The environment without the launcher's variables, for processes that are started from here. */
export function withoutLauncher(environment: Environment): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => !LAUNCHER_VARIABLES.test(name)));
}

/** torchrun, and operators that set what `torch.distributed` reads. torchrun's agent itself holds MASTER_PORT. */
function fromTorch(environment: Environment): Place | undefined {
  const { TORCHELASTIC_RUN_ID: run } = environment;
  if (environment.RANK === undefined || environment.WORLD_SIZE === undefined) return undefined;
  const launcher = run === undefined ? 'torch' : 'torchrun';
  const [rank, size] = among(environment, launcher, 'RANK', 'WORLD_SIZE');
  if (size === 1) return undefined;
  const local =
    environment.LOCAL_RANK === undefined
      ? ([0, 1] as const)
      : among(environment, launcher, 'LOCAL_RANK', 'LOCAL_WORLD_SIZE');
  const host = needed(environment, launcher, 'MASTER_ADDR');
  const port = whole(environment, launcher, 'MASTER_PORT');
  return {
    launcher,
    mpi: false,
    rank,
    size,
    localRank: local[0],
    localSize: local[1],
    // Neither the host, which some operators call localhost on the master alone, nor the count of restarts is part of
    // it: each agent has its own count, and they differ once a machine was replaced.
    job: `${run ?? 'torch'}/${port}/${size}`,
    host,
    ports: range(run === undefined ? port : port + 1),
  };
}

function fromOpenMpi(environment: Environment, starter: () => string): Place | undefined {
  if (environment.OMPI_COMM_WORLD_RANK === undefined) return undefined;
  const [rank, size] = among(environment, 'mpi', 'OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE');
  const [localRank, localSize] = among(
    environment,
    'mpi',
    'OMPI_COMM_WORLD_LOCAL_RANK',
    'OMPI_COMM_WORLD_LOCAL_SIZE',
  );
  const job =
    environment.PMIX_NAMESPACE ?? environment.OMPI_MCA_ess_base_jobid ?? environment.OMPI_MCA_orte_hnp_uri;
  return byMpi(environment, { rank, size, localRank, localSize }, job, starter);
}

/** MPICH, Intel MPI, MVAPICH, and PALS of HPE, which has other names for the ranks of a machine. */
function fromMpich(environment: Environment, starter: () => string): Place | undefined {
  const { PMI_RANK, PMI_SIZE, PMI_ID, PMI_PORT, MPI_LOCALRANKID, PMI_LOCAL_RANK } = environment;
  if (PMI_RANK === undefined && PMI_ID !== undefined && PMI_PORT !== undefined)
    throw invalid(
      'PMI_ID and PMI_PORT are set (mpi), and nothing says how many processes there are; start them without -pmi-port',
    );
  if (PMI_RANK === undefined || PMI_SIZE === undefined || isOfSrun(environment)) return undefined;
  const [rank, size] = among(environment, 'mpi', 'PMI_RANK', 'PMI_SIZE');
  const [localRank, localSize] =
    MPI_LOCALRANKID !== undefined
      ? among(environment, 'mpi', 'MPI_LOCALRANKID', 'MPI_LOCALNRANKS')
      : PMI_LOCAL_RANK !== undefined
        ? among(environment, 'mpi', 'PMI_LOCAL_RANK', 'PMI_LOCAL_SIZE')
        : [rank, size];
  return byMpi(environment, { rank, size, localRank, localSize }, undefined, starter);
}

/**
 * Whether srun started the process: `srun --mpi=pmi2` sets variables of MPICH as well as its own, and only its own
 * describe the machine.
 */
function isOfSrun(environment: Environment): boolean {
  const { SLURM_STEP_ID, SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_NTASKS, MPI_LOCALRANKID } = environment;
  return (
    SLURM_STEP_ID !== undefined &&
    MPI_LOCALRANKID === undefined &&
    SLURM_PROCID === environment.PMI_RANK &&
    (SLURM_STEP_NUM_TASKS ?? SLURM_NTASKS) === environment.PMI_SIZE
  );
}

/** @param named the job's name, where the launcher gives it one */
function byMpi(
  environment: Environment,
  found: Pick<Place, 'rank' | 'size' | 'localRank' | 'localSize'>,
  named: string | undefined,
  starter: () => string,
): Place | undefined {
  const { rank, size, localSize } = found;
  if (size === 1) return undefined;
  const isOne = localSize === size;
  const { MASTER_ADDR, MASTER_PORT, SLURM_JOB_ID, SLURM_STEP_ID } = environment;
  const host = MASTER_ADDR ?? (isOne ? '127.0.0.1' : slurmHost(environment));
  const several = `rank ${rank} of ${size} (mpi): the processes are on several machines, and nothing`;
  if (host === undefined)
    throw invalid(
      `${several} says on which rank 0 is; name its host: mpirun -x MASTER_ADDR=HOST …, of MPICH -genv MASTER_ADDR HOST`,
    );
  const job =
    named ??
    (!isOne && SLURM_STEP_ID !== undefined
      ? `mpi/${SLURM_JOB_ID}.${SLURM_STEP_ID}`
      : MASTER_PORT !== undefined
        ? `mpi/${host}:${MASTER_PORT}`
        : isOne
          ? `mpi/${starter()}`
          : undefined);
  if (job === undefined)
    throw invalid(
      `${several} tells this job from another; give it a port of its own: mpiexec -genv MASTER_PORT PORT …`,
    );
  return { ...found, launcher: 'mpi', mpi: true, job, host, ports: portsOf(environment, 'mpi', job) };
}

/**
 * The process that started the processes of an MPI job on this machine: the nearest ancestor that is none of them, nor
 * a shell or npx between. Process numbers come again, but not with the same start time.
 *
 * @throws StepTrainError E_RANGE where it cannot be seen, as by the first process of a container
 */
export function mpiProxy(of: number = process.pid): string {
  for (let pid = of; ; ) {
    // After the name in brackets, which may contain anything, come state, parent, …; the start is the 22nd field.
    const fields = statOf(pid)
      .replace(/^.*\) /s, '')
      .split(' ');
    if (pid !== of && !isRank(pid)) return `${hostname()}/${pid}/${fields[19]}`;
    pid = Number(fields[1]);
  }
}

/** The first process of a PID namespace has parent 0, which is none. */
function statOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {
    throw invalid(
      'what has started this rank (mpi) cannot be seen from here, as in a container of its own, and nothing else tells this ' +
        'job from another; set MASTER_ADDR and MASTER_PORT, for all its processes the same',
    );
  }
}

function isRank(pid: number): boolean {
  return attempt(
    () => /(^|\0)(PMI_RANK|OMPI_COMM_WORLD_RANK)=/.test(readFileSync(`/proc/${pid}/environ`, 'latin1')),
    false,
  );
}

/** A script of sbatch has SLURM_NTASKS and SLURM_PROCID too, but is no step: only `srun` starts several. */
function fromSlurm(environment: Environment): Place | undefined {
  const { SLURM_STEP_ID: step, SLURM_JOB_ID: id, SLURM_RESTART_COUNT: restart = '0' } = environment;
  if (step === undefined || environment.SLURM_PROCID === undefined) return undefined;
  const sizeName = environment.SLURM_STEP_NUM_TASKS === undefined ? 'SLURM_NTASKS' : 'SLURM_STEP_NUM_TASKS';
  const [rank, size] = among(environment, 'slurm', 'SLURM_PROCID', sizeName);
  if (size === 1) return undefined;
  const localRank = whole(environment, 'slurm', 'SLURM_LOCALID');
  const node = environment.SLURM_NODEID === undefined ? 0 : whole(environment, 'slurm', 'SLURM_NODEID');
  const tasks = environment.SLURM_STEP_TASKS_PER_NODE ?? environment.SLURM_TASKS_PER_NODE ?? String(size);
  const localSize = tasksOn(tasks, node) ?? size;
  // The name of a node need not be one that its own resolver knows.
  const host = environment.MASTER_ADDR ?? (localSize === size ? '127.0.0.1' : slurmHost(environment));
  if (host === undefined)
    throw invalid(
      `rank ${rank} of ${size} (slurm): SLURM_STEP_NODELIST is missing; set MASTER_ADDR to the host of rank 0`,
    );
  const job = `${id}.${step}/${restart}`;
  return {
    launcher: 'slurm',
    mpi: environment.PMIX_RANK !== undefined,
    rank,
    size,
    localRank,
    localSize,
    cores:
      environment.SLURM_CPUS_ON_NODE === undefined
        ? undefined
        : whole(environment, 'slurm', 'SLURM_CPUS_ON_NODE'),
    job,
    host,
    ports: portsOf(environment, 'slurm', job),
  };
}

/** The first host of a list such as `gpu[03-05,9],login`. */
export function firstHost(list: string): string {
  const [, prefix = '', inside, suffix = ''] = /^([^,[]+)(?:\[([^\]]*)\])?([^,[]*)/.exec(list) ?? [];
  const [first] = inside === undefined ? [''] : (inside.split(/[-,]/) as [string]);
  return `${prefix}${first}${suffix}`;
}

/** The tasks of node `node` in a list such as `4(x2),3`. */
export function tasksOn(list: string, node: number): number | undefined {
  const each = list.split(',').flatMap((part) => {
    const [, tasks, times = '1'] = /^(\d+)(?:\(x(\d+)\))?$/.exec(part.trim()) ?? [];
    return tasks === undefined ? [] : Array<number>(Number(times)).fill(Number(tasks));
  });
  return each[node];
}

function slurmHost({ SLURM_STEP_NODELIST, SLURM_JOB_NODELIST }: Environment): string | undefined {
  const list = SLURM_STEP_NODELIST ?? SLURM_JOB_NODELIST;
  return list === undefined ? undefined : firstHost(list);
}

/** MASTER_PORT, else one that the job's name gives, below those that systems hand out themselves. */
function portsOf(environment: Environment, launcher: string, job: string): readonly number[] {
  if (environment.MASTER_PORT !== undefined) return range(whole(environment, launcher, 'MASTER_PORT'));
  return range(20_000 + (createHash('sha256').update(job).digest().readUInt32LE() % 12_000));
}

/**
 * Time that a process waits at the start for the others, and for an address of rank 0's host; empty where
 * STEPTRAIN_JOIN_SECONDS is.
 *
 * @throws StepTrainError E_RANGE for an invalid number of seconds
 */
export function joinLimits(environment: Environment): {
  readonly joinSeconds?: number;
  readonly unknownSeconds?: number;
} {
  const text = environment.STEPTRAIN_JOIN_SECONDS;
  if (text === undefined || text === '') return {};
  const seconds = /^\d{1,6}$/.test(text) ? Number(text) : 0;
  if (seconds === 0)
    throw invalid(
      `STEPTRAIN_JOIN_SECONDS is ${JSON.stringify(text)}, expected a whole number of seconds from 1 to 999999; unset it for 300`,
    );
  return { joinSeconds: seconds, unknownSeconds: seconds };
}

const range = (first: number) => Array.from({ length: PORTS }, (_, i) => first + i);

function among(environment: Environment, launcher: string, rankName: string, sizeName: string) {
  const [rank, size] = [
    whole(environment, launcher, rankName),
    whole(environment, launcher, sizeName),
  ] as const;
  if (rank >= size)
    throw invalid(
      `${rankName} is ${rank}, and ${sizeName} is ${size} (${launcher}): unset both, or start with the launcher`,
    );
  return [rank, size] as const;
}

function whole(environment: Environment, launcher: string, name: string): number {
  const text = needed(environment, launcher, name);
  if (!/^\d{1,9}$/.test(text))
    throw invalid(`${name} is ${JSON.stringify(text)} (${launcher}), expected a whole number`);
  return Number(text);
}

function needed(environment: Environment, launcher: string, name: string): string {
  const text = environment[name];
  if (text === undefined || text === '')
    throw invalid(
      `${name} is not set, and the other variables of ${launcher} are; start with the launcher, or set it`,
    );
  return text;
}
