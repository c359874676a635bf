/** The processes of a job that share the work of a run, by the device on which this one does its part. */
import type { Cluster } from '../cluster/cluster.js';
import type { Device } from './device.js';

export interface Processes {
  readonly cluster: Cluster;
  /** All call it at the same point: the run's signal is aborted afterwards, in all, if one of them was asked to stop. */
  settle(): Promise<void>;
  /** Forwards exchange weights: every process does as many, in the same order. */
  readonly lockstep?: boolean;
  /** Gradients are summed and freed during the backward pass, but for the slice that this process updates. */
  readonly releases?: boolean;
  /** Counts tokens that this process has trained on or sampled. */
  add(tokens: number): void;
}

const shared = new WeakMap<Device, Processes>();

/** Divides all later work on `device` among the processes. */
export function shareWork(device: Device, processes: Processes): void {
  shared.set(device, processes);
}

/** Undefined where this process is alone. */
export function processesOf(device: Device): Processes | undefined {
  return shared.get(device);
}
