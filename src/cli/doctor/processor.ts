// The processor's name. Linux has the name for x86 alone; for ARM it has the numbers of maker and part (the Main ID
// Register).
import { readFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { attempt } from '../../native/attempt.js';

/** Parts of implementer 0x41, ARM itself; other makers are shown by number. */
const PARTS: Readonly<Record<string, string>> = {
  '0xd08': 'Cortex-A72',
  '0xd0b': 'Cortex-A76',
  '0xd0c': 'Neoverse N1',
  '0xd40': 'Neoverse V1',
  '0xd49': 'Neoverse N2',
  '0xd4f': 'Neoverse V2',
  '0xd83': 'Neoverse V3',
  '0xd85': 'Cortex-X925',
  '0xd87': 'Cortex-A725',
  '0xd8e': 'Neoverse N3',
};

/** Names of the different kinds of cores, of which a machine may have two. */
export function processorName(
  arch: string = process.arch,
  cpuinfo = attempt(() => readFileSync('/proc/cpuinfo', 'utf8'), ''),
  model = cpus()[0]?.model.trim(),
): string {
  if (arch !== 'arm64') return model || 'unknown';
  const emulating = /^vendor_id/m.test(cpuinfo) && /^model name\s*: *(.*)$/m.exec(cpuinfo)?.[1]?.trim();
  if (emulating) return `unknown, emulated on ${emulating}`;
  const implementers = values(cpuinfo, 'CPU implementer');
  const names = values(cpuinfo, 'CPU part').map((part, core) => {
    const implementer = implementers[core] ?? '0x41';
    const known = implementer === '0x41' ? PARTS[part] : undefined;
    return known ?? `ARM implementer ${implementer}, part ${part}`;
  });
  return [...new Set(names)].join(' and ') || model || 'unknown';
}

/** Values of a key in /proc/cpuinfo, core by core. */
const values = (cpuinfo: string, key: string): string[] =>
  [...cpuinfo.matchAll(new RegExp(`^${key}\\s*: *(\\S+)`, 'gm'))].map(([, value]) => value as string);
