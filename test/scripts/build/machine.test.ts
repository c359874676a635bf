// For which instruction sets and GPUs the addon is compiled.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';

const { addonPlan, crossCompiler, crossCuda, crossPlan, gpuArchitectures, machineIsas } = await import(
  new URL('../../../scripts/build/machine.mjs', import.meta.url).href
);

import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const AVX512 = ['avx2', 'fma', 'avx512f', 'avx512bw', 'avx512vl', 'avx512dq'];

it.each([
  ['no vectors', [], ['portable']],
  ['AVX2', ['avx2', 'fma'], ['portable', 'avx2']],
  ['AVX2 without FMA', ['avx2'], ['portable']],
  ['half of AVX-512', ['avx2', 'fma', 'avx512f'], ['portable', 'avx2']],
  ['AVX-512', AVX512, ['portable', 'avx512']],
  ['AVX-512-BF16', [...AVX512, 'avx512_bf16'], ['portable', 'avx512', 'avx512bf16']],
  ['AMX', [...AVX512, 'avx512_bf16', 'amx_bf16', 'amx_tile'], ['portable', 'avx512', 'avx512bf16', 'amx']],
])('a processor with %s', (_, flags, expected) => {
  expect(machineIsas(new Set(flags), 'x64')).toEqual(expected);
});

it.each([
  ['ARM', ['fp', 'asimd'], ['portable', 'neon']],
  ['ARM with bf16', ['fp', 'asimd', 'bf16'], ['portable', 'neon', 'neonbf16']],
])('a processor of %s', (_, flags, expected) => {
  expect(machineIsas(new Set(flags), 'arm64')).toEqual(expected);
});

it('is compiled for another processor by a compiler for that, or says what is missing', () => {
  expect(crossPlan('arm64')).toEqual({ isas: ['portable', 'neon', 'neonbf16'] });
  expect(() => crossCompiler('riscv64')).toThrow('--arch is arm64, on a machine that is not, found riscv64');
  const path = process.env.PATH;
  process.env.PATH = '';
  try {
    expect(() => crossCompiler('arm64')).toThrow('apt-get install g++-aarch64-linux-gnu');
  } finally {
    process.env.PATH = path;
  }
});

describe('CUDA for arm64', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'steptrain-sbsa-'));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));
  const isas = ['portable', 'neon', 'neonbf16'];
  /** With a folder that has the library, and an nvcc that compiles for everything. */
  const cross = (env: object, { all = true, toolkit = '/nowhere' } = {}) => {
    mkdirSync(join(folder, 'lib'), { recursive: true });
    writeFileSync(join(folder, 'lib/libcudart_static.a'), '');
    const nvcc = join(folder, 'nvcc');
    const targets = 'sm_80 sm_89 sm_90 sm_100 sm_103 sm_110 sm_120 sm_121';
    writeFileSync(
      nvcc,
      `#!/bin/sh\n[ "$1" = --dryrun ] && echo '#$ TOP=/cuda' >&2 || printf '%s\\n' ${targets}\n`,
    );
    chmodSync(nvcc, 0o755);
    return { nvcc, plan: crossPlan('arm64', all, { env, nvcc: () => nvcc, sbsa: toolkit }) };
  };

  it('is compiled for the GPUs beside ARM where the runtime library is', () => {
    const { nvcc, plan } = cross({ STEPTRAIN_SBSA_CUDA: folder });
    const libraries = join(folder, 'lib');
    expect(plan.cuda).toEqual({ nvcc, architectures: '90a;100;120', libraries });
    expect(cross({}, { toolkit: folder }).plan).toEqual(plan);
    expect(cross({ STEPTRAIN_CUDA_ARCHS: '80' }, { toolkit: folder }).plan.cuda.architectures).toBe('80');
    expect(crossCuda(plan.cuda)).toContain(`CUDA_cudart_static_LIBRARY=${libraries}/libcudart_static.a`);
    expect(crossCuda(plan.cuda)).toContain(
      `CMAKE_CUDA_FLAGS=-I/cuda/include -isystem /cuda/include/cccl -L${libraries}`,
    );
  });

  it('is left out, and the reason said, where it is not', () => {
    const why = /^\/nowhere\/lib\/libcudart_static\.a is not there; STEPTRAIN_SBSA_CUDA names the folder/;
    expect(cross({}).plan).toEqual({ isas, why: expect.stringMatching(why) });
    expect(() => cross({ STEPTRAIN_SBSA_CUDA: '/elsewhere' })).toThrow(
      'STEPTRAIN_SBSA_CUDA is /elsewhere, and /elsewhere/lib/libcudart_static.a is not there',
    );
  });

  it('is left out where nobody asks for it', () => {
    expect(cross({ STEPTRAIN_SBSA_CUDA: folder }, { all: false }).plan).toEqual({ isas });
    expect(cross({ STEPTRAIN_SBSA_CUDA: folder, STEPTRAIN_CUDA: '0' }).plan).toEqual({ isas });
  });
});

describe('CUDA', () => {
  const plan = (env: object, { nvcc = true, gpus = [] as string[], all = false } = {}) =>
    addonPlan(all, { env, nvcc: () => (nvcc ? '/cuda/bin/nvcc' : undefined), gpus: () => gpus });
  const compiled = (architectures: string) => ({ nvcc: '/cuda/bin/nvcc', architectures });

  it('is compiled for the GPU that is there', () => {
    expect(plan({}, { gpus: ['89'] }).cuda).toEqual(compiled('89'));
    expect(plan({}, { gpus: ['80', '90a'] }).cuda).toEqual(compiled('80;90a'));
    expect(plan({ STEPTRAIN_CUDA: '0' }, { gpus: ['89'] }).cuda).toBeUndefined();
  });

  it('is left out, with the reason, where there is no GPU', () => {
    expect(plan({})).toMatchObject({ why: 'no GPU found; STEPTRAIN_CUDA=1 adds it' });
    expect(plan({}).cuda).toBeUndefined();
    expect(plan({}, { nvcc: false }).why).toBeUndefined();
    expect(plan({}, { nvcc: false, gpus: ['80'] }).why).toBe('a GPU, but no nvcc');
  });

  it('is compiled without one where that is asked for', () => {
    expect(plan({ STEPTRAIN_CUDA: '1' }).cuda).toEqual(compiled('80;90a'));
    expect(plan({ STEPTRAIN_CUDA_ARCHS: '90a' }).cuda).toEqual(compiled('90a'));
    expect(() => plan({ STEPTRAIN_CUDA: '1' }, { nvcc: false })).toThrow('there is no nvcc on the PATH');
  });

  it('is for every machine with --all, as far as there is nvcc', () => {
    expect(plan({}, { all: true, gpus: ['89'] }).cuda).toEqual(compiled('80;90a'));
    expect(plan({ STEPTRAIN_CUDA_ARCHS: '80' }, { all: true }).cuda).toEqual(compiled('80'));
    expect(plan({}, { all: true, nvcc: false }).cuda).toBeUndefined();
    if (process.arch === 'x64')
      expect(plan({}, { all: true }).isas).toEqual(['portable', 'avx2', 'avx512', 'avx512bf16', 'amx']);
  });
});

it.each([
  [
    '13.0',
    'sm_75 sm_80 sm_86 sm_87 sm_88 sm_89 sm_90 sm_100 sm_110 sm_103 sm_120 sm_121',
    '80;89;90a;100;120',
  ],
  ['12.4', 'sm_50 sm_80 sm_86 sm_89 sm_90', '80;89;90a'],
])('with --all, nvcc %s compiles for every GPU that it knows', (_, targets, architectures) => {
  const folder = mkdtempSync(join(tmpdir(), 'steptrain-nvcc-'));
  const nvcc = join(folder, 'nvcc');
  try {
    writeFileSync(nvcc, `#!/bin/sh\nprintf '%s\\n' ${targets}\n`);
    chmodSync(nvcc, 0o755);
    expect(addonPlan(true, { env: {}, nvcc: () => nvcc, gpus: () => ['89'] }).cuda).toEqual({
      nvcc,
      architectures,
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

it.each([
  ['13.0', 'sm_80 sm_89 sm_90 sm_100 sm_103 sm_120 sm_121', ['121', '103', '90a'], '121;103;90a'],
  [
    '12.8, with code that runs on newer ones',
    'sm_80 sm_90 sm_100 sm_120',
    ['121', '103', '89'],
    '120;100;80',
  ],
  ['12.4, with PTX', 'sm_80 sm_86 sm_89 sm_90', ['120', '89'], '80;89'],
])('for the GPUs here nvcc %s compiles what it can', (_, targets, gpus, architectures) => {
  const folder = mkdtempSync(join(tmpdir(), 'steptrain-nvcc-'));
  const nvcc = join(folder, 'nvcc');
  try {
    writeFileSync(nvcc, `#!/bin/sh\nprintf '%s\\n' ${targets}\n`);
    chmodSync(nvcc, 0o755);
    expect(addonPlan(false, { env: {}, nvcc: () => nvcc, gpus: () => gpus }).cuda).toEqual({
      nvcc,
      architectures,
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

describe('the GPUs of nvidia-smi', () => {
  let folder: string;
  const path = process.env.PATH;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'steptrain-smi-'));
    process.env.PATH = folder;
  });
  afterEach(() => {
    process.env.PATH = path;
    rmSync(folder, { recursive: true, force: true });
  });
  const nvidiaSmi = (script: string) => {
    writeFileSync(join(folder, 'nvidia-smi'), `#!/bin/sh\n${script}\n`);
    chmodSync(join(folder, 'nvidia-smi'), 0o755);
  };

  it('are named as nvcc does, each once, without those that are too old', () => {
    expect(gpuArchitectures()).toEqual([]);
    nvidiaSmi('printf "9.0\\n9.0\\n8.9\\n7.5\\n12.0\\n"');
    expect(gpuArchitectures()).toEqual(['90a', '89', '120']);
  });

  it('are none where it fails, as it does without a driver', () => {
    nvidiaSmi('echo "couldn\'t communicate with the NVIDIA driver"; exit 9');
    expect(gpuArchitectures()).toEqual([]);
  });
});
