/** Diagnoses failed loads of the addon: the cause, and the commands that mend it. */

/** A file that was tried. */
export interface FailedLoad {
  readonly path: string;
  /** The reason of the system's loader; undefined where there is no such file. */
  readonly reason?: string;
}

/** The properties that decide which binary fits. */
export interface Platform {
  readonly platform: string;
  readonly arch: string;
  /** Name and version, such as `Node 24.11.0`. */
  readonly runtime: string;
  /** Version of the C library, or `unknown`; undefined where it is not glibc. */
  readonly glibc: string | undefined;
}

/** Versions that the prebuilt addon needs; scripts/prebuild.mjs refuses a binary that needs newer ones. */
export const PREBUILT = { glibc: '2.34', glibcxx: '3.4.29' } as const;

const COMPILE = 'npx steptrain build';

/** One line for what failed, one for each path, and what to do. */
export function diagnosis(failures: readonly FailedLoad[], platform: Platform): string {
  const { platform: system, arch, runtime, glibc } = platform;
  const library = glibc === undefined ? ', not glibc,' : glibc === 'unknown' ? '' : `, glibc ${glibc},`;
  return [
    `the native addon of steptrain did not load on ${system}-${arch}${system === 'linux' ? library : ''} with ${runtime}:`,
    ...failures.map(({ path, reason }) => `  ${path}: ${reason ?? 'no such file'}`),
    ...advice(failures, platform),
  ].join('\n');
}

function advice(failures: readonly FailedLoad[], { platform, arch, glibc }: Platform): string[] {
  if (platform !== 'linux')
    return [
      `steptrain runs on Linux; on ${platform} use it in a container, a virtual machine${platform === 'win32' ? ' or WSL 2' : ''}`,
    ];
  const reasons = failures.flatMap(({ reason }) => reason ?? []).join('\n');
  const compile = `compile it here: ${COMPILE} (needs g++ 12 or newer, make and CMake 3.22 or newer)`;
  const [, library, version] = /version `(GLIBC|GLIBCXX|CXXABI)_([\d.]+)' not found/.exec(reasons) ?? [];
  if (library === 'GLIBC')
    return [
      `the prebuilt addon needs glibc ${PREBUILT.glibc} (Debian 12, Ubuntu 22.04, RHEL 9), this one wants ${version}; use a newer system, or ${compile}`,
    ];
  if (library)
    return [
      `the prebuilt addon needs libstdc++ with GLIBCXX_${PREBUILT.glibcxx} (GCC 11), this one wants ${library}_${version}; a Conda environment or LD_LIBRARY_PATH may bring an older one: start without them, or ${compile}`,
    ];
  const missing = /(\S+\.so[\w.]*): cannot open shared object file/.exec(reasons)?.[1];
  if (missing)
    return [
      `the library ${missing} is missing: apt-get install ${/stdc\+\+/.test(missing) ? 'libstdc++6' : 'the package that has it'}, or ${compile}`,
    ];
  if (/noexec|failed to map segment/.test(reasons))
    return ['its file system is mounted noexec; install the package elsewhere'];
  if (/invalid ELF header|file too short|wrong ELF class/.test(reasons))
    return [`the file is damaged: npm install steptrain --force, or ${compile}`];
  const [, name] = /^(@steptrain\/\S+) is \S+, and steptrain /m.exec(reasons) ?? [];
  if (name) return [`install ${name} of the version that steptrain has, or ${compile}`];
  if (reasons !== '') return [compile];
  const prebuilt = (arch === 'x64' || arch === 'arm64') && glibc !== undefined;
  return [
    prebuilt
      ? `in a clone: npm run build; else its package is missing: npm install it beside steptrain (steptrain-linux-${arch}-VERSION.tgz, or @steptrain/linux-${arch} where that is in your registry), or ${compile}`
      : `there are binaries for Linux on x64 and arm64 with glibc alone; ${compile}`,
  ];
}
