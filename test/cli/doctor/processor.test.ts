import { describe, expect, it } from 'vitest';
import { processorName } from '../../../src/cli/doctor/processor.js';

const cores = (...pairs: [implementer: string, part: string][]) =>
  pairs
    .map(
      ([implementer, part], i) =>
        `processor\t: ${i}\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd bf16\nCPU implementer\t: ${implementer}\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: ${part}\nCPU revision\t: 0\n`,
    )
    .join('\n');
const X64 = 'processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) CPU @ 2.10GHz\n';

describe('the name of a processor', () => {
  it.each([
    ['Grace', cores(['0x41', '0xd4f'], ['0x41', '0xd4f']), 'Neoverse V2'],
    ['DGX Spark', cores(['0x41', '0xd87'], ['0x41', '0xd85']), 'Cortex-A725 and Cortex-X925'],
    ['one of another maker', cores(['0xc0', '0xac3']), 'ARM implementer 0xc0, part 0xac3'],
    ['one of another maker with a known part', cores(['0x51', '0xd4f']), 'ARM implementer 0x51, part 0xd4f'],
    ['one that is emulated', X64, 'unknown, emulated on Intel(R) Xeon(R) CPU @ 2.10GHz'],
    ['nothing to read', '', 'unknown'],
  ])('of ARM: %s', (_, cpuinfo, expected) => {
    expect(processorName('arm64', cpuinfo, 'unknown')).toBe(expected);
  });

  it('of x64 is what Node knows', () => {
    expect(processorName('x64', X64, 'Intel(R) Xeon(R) CPU @ 2.10GHz')).toBe(
      'Intel(R) Xeon(R) CPU @ 2.10GHz',
    );
    expect(processorName('x64', '', '')).toBe('unknown');
  });
});
