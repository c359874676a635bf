// The records of small files, as a configuration reads and splits them.
import { completeRunConfig } from '../../src/methods/config.js';
import { configuredRecords } from '../../src/run/parts.js';

export const records = (data: Record<string, unknown>) =>
  configuredRecords(completeRunConfig({ method: 'sft', data }).data);

/** Problems by the names `p0`, `p1`, … */
export const names = (count: number, prefix = 'p') =>
  Array.from({ length: count }, (_, i) => `${prefix}${i}`);
