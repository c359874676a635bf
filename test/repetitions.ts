/**
 * How often a test repeats what goes wrong by chance, if at all: `all` before a release, which STEPTRAIN_RELEASE=1 says
 * (`.ci/run --release` sets it), else `few`.
 */
export const repetitions = (few: number, all: number): number =>
  process.env.STEPTRAIN_RELEASE === '1' ? all : few;
